-- statement multi_take
-- Takes several leases for one session: all of them in one commit, or none. Each has to be free, and no client
-- may wait for it before this one: without entries no client at all, with entries in the queues ($7) each of
-- these has to be the first of its queue.
--
-- p judges in this statement's snapshot. If any name fails there, nothing is locked. k then locks the rows, in
-- the byte order of their names, and compares each token with the judged one: every grant changes the token, and
-- a row that is free at one token is never held at it again, so a judgement that has become stale fails. k waits
-- for no row: a transaction that was fenced with an earlier grant may have one locked for long. The caller tries
-- again, as after a lost race. c locks the entries, after the leases as everywhere: one that was cancelled
-- meanwhile is missing. Only with all k rows, and all k entries, is anything written.
--
-- No client is overtaken: every waiter has a ticket, and the entries of one request have the same one. So of
-- two requests the same one is first in every queue that both are in, and no two wait for each other. A request
-- with a lower ticket that becomes visible after the snapshot was made at the same time as this one.
--
-- A promised token is passed over; a name that is promised to another waiter that can be served is not taken
-- (docs/adr/0023). This request is promised nothing. The watermark moves as in grant_next. A name without a row is
-- not taken: multi_restore makes the row.
-- If the reply is lost, the grant ids find the rows again.
-- $1 my session; arrays: $2 names, each once  $3 grant ids; $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 1 = they have entries  $8 1 = also past waiters
-- → one row a name: name, whether it has a row, whether it can be taken, the holder's session if that has
--   expired, what is left of the holder in µs, the token if granted; whether my session lives; the holder's session if
--   its client may keep the lock after its release, and grant id; 1 = counted holds are in the way, 2 = it is a semaphore
with r as materialized (
         select r.name collate "C" as name, r.grant_id
           from unnest($2::text[], $3::bigint[]) as r (name, grant_id)),
     mine as materialized (
         select m.id, (select f.floor from rowlock_token_floor f) as floor
           from rowlock_session m where m.id = $1::bigint and {live}),
     p as materialized (
         select r.name, r.grant_id, l.present, l.token, l.served,
                case when l.expired and not l.free then l.session end as expired,
                case when l.free then null else l.remaining end as remaining,
                case when not l.free then l.keeper end as keeper, l.grant_id as kept_grant, l.counted,
                coalesce(l.free, false) and coalesce(l.reserved_for, r.grant_id) = r.grant_id
                and ($8::int = 1
                     or coalesce((select w.grant_id from rowlock_ticket w join rowlock_session m on m.id = w.session
                                   where w.name = r.name and w.ticket > coalesce(l.served, 0) - 256 and {waits}
                                   order by w.ticket limit 1) = r.grant_id, $7::int = 0)) as can
           from r left join lateral (
                select true as present, l.token, l.served, l.session, {free} as free, case when l.capacity is not null then 2 else (l.used > 0)::int end as counted,
                       {reserved_for} as reserved_for, l.grant_id,
                       case when l.grant_id in (l.retained, - l.retained) then l.session end as keeper,
                       coalesce(s.expires_at <= clock_timestamp(), false) as expired,
                       {until(least(s.expires_at, l.deadline))} as remaining
                  from rowlock_lock l left join rowlock_session s on s.id = l.session
                 where l.name = r.name offset 0) l on true),
     k as materialized (
         select p.name, p.grant_id, case when l.served < p.served then l.served end as rewound
           from mine
                cross join (select p.* from p
                             where (select count(*) from mine where mine.floor is not null) = 1
                               and (select count(*) from p where p.can) = (select count(*) from r)
                             order by p.name offset 0) p
                cross join lateral (
                    select l.served from rowlock_lock l where l.name = p.name and l.token = p.token
                       for update skip locked) l),
     c as materialized (
         select w.name, w.ticket
           from rowlock_ticket w
          where $7::int = 1 and (select count(*) from k) = (select count(*) from r)
            and w.grant_id = any ($3::bigint[]) and w.session = $1::bigint
            and coalesce(w.waits_until > clock_timestamp(), true)
          order by w.ticket, w.name for update of w),
     g as materialized (
         select k.name, k.grant_id, coalesce(k.rewound, c.ticket) as served
           from k left join c on c.name = k.name
          where (select count(*) from k) = (select count(*) from r)
            and ($7::int = 0 or (select count(*) from c) = (select count(*) from r))),
     d as (
         delete from rowlock_ticket w using c
          where w.name = c.name and w.ticket = c.ticket and exists (select from g)),
     u as (
         update rowlock_lock l
            set token = greatest(l.token, mine.floor) + 1
                        + (coalesce(l.successor, g.grant_id) <> g.grant_id)::int,
                successor = null, session = mine.id, grant_id = g.grant_id, thread = $4::text,
                note = $5::text, acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
                served = coalesce(g.served, l.served),
                deadline = clock_timestamp() + $6::bigint::float8 * interval '1 microsecond'
           from g, mine
          where l.name = g.name
         returning l.name, l.token)
select p.name, coalesce(p.present, false)::int, p.can::int, p.expired, p.remaining, u.token,
       (select count(*) from mine), p.keeper, p.kept_grant, coalesce(p.counted, 0)
  from p left join u on u.name = p.name
 order by p.name

-- statement multi_enqueue
-- Adds an entry to each of several queues, all with the ticket that the first of them draws, and its time: of two
-- requests in a cycle of waiters the same one is the younger at every name. The table of tickets alone is touched,
-- and the commit is asynchronous, both as in enqueue.
-- $1 my session  $2 the first name  $3 its grant id; arrays: $4 the other names  $5 their grant ids;
-- $6 thread  $7 note  $8 own deadline in µs, or NULL  $9 labels of what else they block, or NULL
-- $10 how many names  $11 their caller's time limit in µs, or NULL  $12 weight of the first, or NULL: it waits for all of the
-- lock  $13 weights of the others, as an array
with c as materialized (
         select set_config('synchronous_commit', 'off', true)),
     f as (
         insert into rowlock_ticket (name, session, grant_id, thread, note, deadline_us, enqueued_at, blocks,
                                     members, waits_until, weight)
         select $2::text, $1::bigint, $3::bigint, $6::text, $7::text, $8::bigint, clock_timestamp(), $9::text,
                $10::smallint, clock_timestamp() + $11::bigint::float8 * interval '1 microsecond', $12::bigint from c
         returning ticket, enqueued_at, waits_until)
insert into rowlock_ticket (name, ticket, session, grant_id, thread, note, deadline_us, enqueued_at, blocks, members,
                            waits_until, weight)
overriding system value
select r.name, f.ticket, $1::bigint, r.grant_id, $6::text, $7::text, $8::bigint, f.enqueued_at, $9::text,
       $10::smallint, f.waits_until, r.weight
  from f cross join unnest($4::text[], $5::bigint[], $13::bigint[]) as r (name, grant_id, weight)

-- statement multi_restore
-- Makes the rows of several names that have none, as free: multi_take needs them. In the order of the names,
-- as acquire_all. Their token is the floor, which no grant goes below.
-- $1 names, as an array's text
insert into rowlock_lock (name, token, changed_at)
select r.name, o.floor, clock_timestamp()
  from rowlock_token_floor o,
       (select n.name from pg_catalog.unnest($1::text[]) n (name) order by n.name collate "C") r
on conflict (name) do nothing

-- statement multi_take_permits
-- multi_take for shared_mutexes: takes of each counter the permits that a mode stands for, all in one commit or none.
-- Each has to be free for its mode, and no client may wait for it before this one: without entries no client at all,
-- with entries in the queues ($7) each of these has to be the first of its queue. An upgrade comes before all of them.
--
-- p judges in this statement's snapshot. If any name fails there, nothing is locked. k then locks the rows, in the
-- byte order of their names; the lock judges what is free on the row as it is then. k steps over a row that another
-- transaction has locked, as multi_take does: that may be a holder's, who has taken the lock since and fences it and others
-- in an order of its choice, and to wait for it with rows locked would close a circle. c locks the entries, after the rows
-- as in grant_counted and in the order of cancel: one that was cancelled meanwhile is missing. Only with all
-- k rows, and all k entries, is anything written. A sole holder is none that may be judged here (clear_sole); a promised
-- token is passed over, and a name that is promised to a waiter that can be served is not taken.
--
-- No client is overtaken, and no two requests wait for each other: as in multi_take. The commit is asynchronous ($9)
-- for the reason of take_permits, and no caller learns of the grants before flush_commits has returned. If the reply is
-- lost, the grant ids find the holds again. Then check the queues (grant_counted): the modes may leave room for those
-- that wait behind the entries.
-- $1 my session; arrays: $2 names, each once  $3 grant ids; $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 1 = they have entries  $8 permits, as an array  $9 1 = asynchronously
-- → one row a name: name, whether it has a row, whether it can be taken, NULL, NULL, the token if granted; whether
--   my session lives; 0 if it is a semaphore, else 1; whether it lacks room, or a sole holder is in the way
with r as materialized (
         select r.name collate "C" as name, r.grant_id, r.weight
           from unnest($2::text[], $3::bigint[], $8::bigint[]) as r (name, grant_id, weight)),
     mine as materialized (
         select m.id, (select f.floor from rowlock_token_floor f) as floor
           from rowlock_session m
          where m.id = $1::bigint and {live}
            and ($9::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')),
     p as materialized (
         select r.name, r.grant_id, r.weight, s.kind, r.weight <= s.free as has_room, s.sole,
                s.kind = 1 and s.sole = 0 and s.successor is null and r.weight <= s.free
                and coalesce(s.first = r.grant_id, $7::int = 0) as can
           from r left join lateral (
                select (s.capacity is null)::int as kind, {room(s)} as free, (s.session is not null)::int as sole,
                       (select w.grant_id from rowlock_ticket w join rowlock_session m on m.id = w.session
                         where {stands_at(s)} and {waits}
                         order by w.ticket limit 1) as first,
                       (select h.grant_id from rowlock_ticket h join rowlock_session m on m.id = h.session
                         where h.grant_id = s.successor and {unexpired}) as successor
                  from rowlock_lock s where s.name = r.name offset 0) s on true),
     k as materialized (
         select p.name, p.grant_id, p.weight
           from mine
                cross join (select p.* from p
                             where (select count(*) from mine where mine.floor is not null) = 1
                               and (select count(*) from p where p.can) = (select count(*) from r)
                             order by p.name offset 0) p
                cross join lateral (
                    select s.name from rowlock_lock s
                     where s.name = p.name and s.capacity is null and s.session is null and p.weight <= {room(s)}
                       for update of s skip locked) s),
     c as materialized (
         select w.name, w.ticket
           from rowlock_ticket w
          where $7::int = 1 and (select count(*) from k) = (select count(*) from r)
            and w.grant_id = any ($3::bigint[]) and w.session = $1::bigint
            and coalesce(w.waits_until > clock_timestamp(), true)
          order by w.ticket, w.name for update of w),
     g as materialized (
         select k.name, k.grant_id, k.weight from k
          where (select count(*) from k) = (select count(*) from r)
            and ($7::int = 0 or (select count(*) from c) = (select count(*) from r))),
     d as (
         delete from rowlock_ticket w using c
          where w.name = c.name and w.ticket = c.ticket and exists (select from g)),
     u as (
         update rowlock_lock s
            set used = s.used + g.weight,
                token = greatest(s.token, mine.floor) + 1 + (s.successor is not null)::int, successor = null,
                changed_at = clock_timestamp()
           from g, mine
          where s.name = g.name
         returning s.name, s.token),
     i as (
         insert into rowlock_hold (name, grant_id, session, weight, token, thread, note, acquired_at, deadline)
         select g.name, g.grant_id, $1::bigint, g.weight, u.token, $4::text, $5::text, clock_timestamp(),
                clock_timestamp() + $6::bigint::float8 * interval '1 microsecond'
           from g join u on u.name = g.name)
select p.name, (p.kind is not null)::int, coalesce(p.can, false)::int, null::bigint, null::bigint, u.token,
       (select count(*) from mine), p.kind, (not p.has_room or p.sole = 1)::int
  from p left join u on u.name = p.name
 order by p.name
