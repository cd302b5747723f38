-- statement multi_take
-- Takes several locks for one session, each as a whole or a part of it: all of them in one commit, or none. Each has to
-- be free for that, and no client may wait for it before this one: without entries no client at all, with entries in the
-- queues ($7) each of these has to be the first of its queue. An upgrade comes before all of them.
--
-- p judges in this statement's snapshot. If any name fails there, nothing is locked. k then locks the rows, in one pass
-- over both kinds, in the byte order of their names: with a pass for each kind two requests would wait for each other. Of
-- a whole lock it compares the token with the judged one: every grant changes the token, and a row that is free at one
-- token is never held at it again, so a judgement that has become stale fails. Of a part it judges the room on the row as
-- it is then, and no session. k waits for no row: a transaction that was fenced with an earlier grant may have one locked
-- for long, and with others in an order of its choice. The caller tries again, as after a lost race. c locks the entries,
-- after the rows as everywhere: one that was cancelled in between is missing. Only with all k rows, and all k entries, is
-- anything written.
--
-- No client is overtaken: every waiter has a ticket, and the entries of one request have the same one. So of
-- two requests the same one is first in every queue that both are in, and no two wait for each other. A request
-- with a lower ticket that becomes visible after the snapshot was made at the same time as this one.
--
-- A promised token is passed over; a name that is promised to another waiter that can be served is not taken
-- (docs/adr/0023). This request is promised nothing. The watermark moves as in grant_next; by a part it does not move. A
-- name without a row is not taken: multi_restore makes the row.
-- With a part the commit is asynchronous ($11), for the reason of take_permits, and no caller learns of the grants before
-- flush_commits has returned. Then check the queues of the parts (grant_counted): there may be room for those that wait
-- after the entries.
-- If the reply is lost, the grant ids find the rows and the holds again.
-- $1 my session; arrays: $2 names, each once  $3 grant ids; $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 1 = they have entries  $8 1 = also past waiters, whole locks alone; arrays: $9 weights, NULL: the whole lock  $10 0: permits of
-- a semaphore, 1: no semaphore  $11 1 = asynchronously
-- → one row a name: name, whether it has a row, whether it can be taken; of a whole lock the holder's session if that has
--   expired, and its remaining time in µs; the token if granted; whether my session lives; the
--   capacity of a semaphore; whether counted holds are in the way, or a part has no room
with r as materialized (
         select r.name collate "C" as name, r.grant_id, r.weight, r.kind
           from unnest($2::text[], $3::bigint[], $9::bigint[], $10::int[]) as r (name, grant_id, weight, kind)),
     mine as materialized (
         select m.id, (select f.floor from rowlock_token_floor f) as floor
           from rowlock_session m
          where m.id = $1::bigint and {live}
            and ($11::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')),
     p as materialized (
         select r.name, r.grant_id, r.weight, l.present, l.token, l.served, l.capacity,
                case when l.expired and not l.free then l.session end as expired,
                case when l.free then null else l.remaining end as remaining,
                case when r.weight is null then l.used > 0 else l.session is not null or r.weight > l.room end as full,
                coalesce(case when r.weight is null then l.free
                              else l.session is null and r.weight <= l.room and (l.capacity is null)::int = r.kind end, false)
                and coalesce(l.reserved_for, r.grant_id) = r.grant_id
                and ($8::int = 1 or coalesce(l.first = r.grant_id, $7::int = 0)) as can
           from r left join lateral (
                select true as present, l.token, l.served, l.session, l.used, l.capacity, {room(l)} as room, {free} as free,
                       {reserved_for} as reserved_for,
                       coalesce(s.expires_at <= clock_timestamp(), false) as expired,
                       {until(least(s.expires_at, l.deadline))} as remaining,
                       (select w.grant_id from rowlock_ticket w join rowlock_session m on m.id = w.session
                         where {stands_at(l)} and {waits}
                         order by w.ticket limit 1) as first
                  from rowlock_lock l left join rowlock_session s on s.id = l.session
                 where l.name = r.name offset 0) l on true),
     k as materialized (
         select p.name, p.grant_id, p.weight, case when l.served < p.served then l.served end as rewound
           from mine
                cross join (select p.* from p
                             where (select count(*) from mine where mine.floor is not null) = 1
                               and (select count(*) from p where p.can) = (select count(*) from r)
                             order by p.name offset 0) p
                cross join lateral (
                    select l.served from rowlock_lock l
                     where l.name = p.name
                       and case when p.weight is null then l.token = p.token
                                else l.session is null and p.weight <= {room(l)}
                                     and (l.capacity is null) = (p.capacity is null) end
                       for update skip locked) l),
     c as materialized (
         select w.name, w.ticket
           from rowlock_ticket w
          where $7::int = 1 and (select count(*) from k) = (select count(*) from r)
            and w.grant_id = any ($3::bigint[]) and w.session = $1::bigint
            and coalesce(w.waits_until > clock_timestamp(), true)
          order by w.ticket, w.name for update of w),
     g as materialized (
         select k.name, k.grant_id, k.weight,
                case when k.weight is null then coalesce(k.rewound, c.ticket) end as served
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
                successor = null, used = l.used + coalesce(g.weight, 0),
                session = case when g.weight is null then mine.id end,
                grant_id = case when g.weight is null then g.grant_id end,
                thread = case when g.weight is null then $4::text end,
                note = case when g.weight is null then $5::text end,
                acquired_at = case when g.weight is null then clock_timestamp() end,
                deadline = case when g.weight is null then clock_timestamp() + $6::bigint::float8 * interval '1 microsecond' end,
                changed_at = clock_timestamp(), served = coalesce(g.served, l.served)
           from g, mine
          where l.name = g.name
         returning l.name, l.token),
     i as (
         insert into rowlock_hold (name, grant_id, session, weight, token, thread, note, acquired_at, deadline)
         select g.name, g.grant_id, $1::bigint, g.weight, u.token, $4::text, $5::text, clock_timestamp(),
                clock_timestamp() + $6::bigint::float8 * interval '1 microsecond'
           from g join u on u.name = g.name
          where g.weight is not null)
select p.name, coalesce(p.present, false)::int, p.can::int, p.expired, p.remaining, u.token,
       (select count(*) from mine), p.capacity, coalesce(p.full, false)::int
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
