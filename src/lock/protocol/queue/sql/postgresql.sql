-- statement enqueue
-- Adds a queue entry. The table of tickets alone is written or locked: the holder's fenced transaction may lock the lease's
-- row for long. The commit is asynchronous: a grant that rests on this ticket is durable and makes the ticket
-- so; if a crash loses the ticket first, its owner finds it gone and takes another. The ticket is drawn
-- before it commits, so overlapping enqueues may become visible in either order; one that was answered before
-- another was sent has the lower ticket.
-- The lease is read in the same snapshot, for a client that has not looked at it before. A release that commits
-- after that checks for waiters itself.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 labels of what else it blocks, or NULL  $8 priority of a candidate  $9 its caller's time limit in µs, or NULL
-- $10 weight; NULL: it waits for all of the lock
-- → {glance}
with c as materialized (
         select set_config('synchronous_commit', 'off', true)),
     e as (
         insert into rowlock_ticket (name, session, grant_id, thread, note, deadline_us, enqueued_at, blocks, priority,
                                     waits_until, weight)
         select $1::text, $2::bigint, $3::bigint, $4::text, $5::text, $6::bigint, clock_timestamp(), $7::text,
                $8::bigint, clock_timestamp() + $9::bigint::float8 * interval '1 microsecond', $10::bigint
           from c
         on conflict (grant_id) do nothing)
select {glance}
  from (values (1)) as one
       left join rowlock_lock l on l.name = $1::text
       left join rowlock_session s on s.id = l.session

-- statement enqueue_upgrade
-- Adds the queue entry of an upgrade, before all others: its ticket is negative. There is one upgradeable holder at
-- most, and no other client upgrades, so no two of them are live.
-- $1 … $10 as enqueue  $11 grant id of the hold  $12 ticket
with c as materialized (
         select set_config('synchronous_commit', 'off', true))
insert into rowlock_ticket (name, session, grant_id, thread, note, deadline_us, enqueued_at, blocks, priority,
                            waits_until, weight, base, ticket)
overriding system value
select $1::text, $2::bigint, $3::bigint, $4::text, $5::text, $6::bigint, clock_timestamp(), $7::text,
       $8::bigint, clock_timestamp() + $9::bigint::float8 * interval '1 microsecond', $10::bigint,
       $11::bigint, $12::bigint
  from c
on conflict (grant_id) do nothing

-- statement cancel
-- Cancels queue entries; durable, since a ticket that came back after a crash would be granted with no thread
-- waiting. Waits for a ticket that a grant has locked; the ticket is gone then. In ticket order, so two calls
-- cannot wait in a cycle; a granting transaction holds no more than one ticket, and waits for nothing once it
-- has it, or locks the others of one request in the same order.
-- $1 grant ids, as an array's text
-- → the grant ids whose tickets this call deleted
with k as materialized (
         select w.name, w.ticket from rowlock_ticket w where w.grant_id = any ($1::text::bigint[])
          order by w.ticket, w.name for update of w)
delete from rowlock_ticket w using k
 where w.name = k.name and w.ticket = k.ticket returning w.grant_id

-- statement delete_entries_of
-- Deletes the queue entries of a session that has ended or is gone. A dead session stays dead, so the judgement
-- cannot become stale; an entry that its client adds afterwards is left to the reaper. One that a grant has
-- locked is skipped: the grant deletes it, or was rolled back, and then the reaper does. Locks nothing but
-- tickets, in their order. A crash may bring them back, so the commit does not wait for the disk.
-- $1 session
with c as materialized (
         select set_config('synchronous_commit', 'off', true)),
     k as materialized (
         select w.name, w.ticket from c, rowlock_ticket w
          where w.session = $1::bigint
            and not exists (select from rowlock_session m where m.id = $1::bigint and not m.ended)
          order by w.ticket for update of w skip locked)
delete from rowlock_ticket w using k where w.name = k.name and w.ticket = k.ticket

-- statement entries
-- All queue entries of a session, in one snapshot; reads only. Result: fragment entry_states.
-- $1 my session
with mine as materialized (
         select w.name, w.grant_id, w.ticket, w.weight from rowlock_ticket w
          where w.session = $1::bigint),
     {entry_states}

-- statement entries_by_id
-- Some queue entries of a session, like `entries`, by their grant ids: to read one that was just added. By
-- session the server would step over the index entries of all tickets the session had before, until vacuum
-- comes.
-- $1 my session  $2 grant ids, as an array's text
with mine as materialized (
         select w.name, w.grant_id, w.ticket, w.weight from rowlock_ticket w
          where w.grant_id = any ($2::text::bigint[]) and w.session = $1::bigint),
     {entry_states}

-- statement names_with_waiters
-- Which of these names have a live waiter. Reads only. Most often it is one name sixteen times: each is asked for once.
-- $1 … $16 names; may repeat
select n.name
  from (select distinct u.name
          from pg_catalog.unnest(array[$1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text,
                   $8::text, $9::text, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text,
                   $16::text]) as u(name) offset 0) n
 where {waited_n}

-- statement queues_of_session
-- The names that the end of a session concerns: those with live waiters that it held, or in whose queue it has an entry,
-- are to be served; those that it has counted holds of are to be swept first. Locks and tickets in one snapshot: a grant
-- that moved the session from the one to the other is seen as either. Sole holders are found from the waiters, which are
-- few: locks have no index by session. OFFSET 0 has them looked up by key: where statistics are old, the planner would
-- read all of them.
-- $1 session
-- → name, whether it has counted holds of it
select n.name, max(n.counted)
  from (select w.name, 0 as counted
          from rowlock_ticket w join rowlock_session m on m.id = w.session
         where {live}
           and (exists (select from rowlock_lock l where l.name = w.name and l.session = $1::bigint
                        offset 0)
                or exists (select from rowlock_ticket d where d.name = w.name and d.session = $1::bigint))
        union all
        select s.name, 1 from rowlock_hold s where s.session = $1::bigint) n
 group by n.name

-- statement deadlocks
-- The data for a search for deadlock cycles, in one snapshot; reads only. The parties are pairs of session
-- and thread label; a holder or waiter without a label takes no part.
--
-- `reach` is the set of names that our entries lead to: from a name to what its holders wait for, and to what
-- the waiters in its queue wait for besides. It stops growing where no new name is found, also among cycles
-- without us. A semaphore has no part in it: any of its holders may return what is waited for. An entry with `blocks` is followed from every hold of its session: whose label is which party the caller
-- decides (party_labels.hpp), as it decides what is a cycle, and which entry gives way. OFFSET 0 keeps each
-- look-up a look-up by key: the planner does not know how few names are reached, and would read whole tables.
-- $1 my session
-- → name; its holder's or waiter's: ticket (NULL: a holder), grant id, session, thread, note, host, program, process id;
--   weight (NULL: all of the lock), when the entry was made, of an upgrade the grant id of its hold, labels of what
--   else it blocks
with recursive reach (name) as (
         select w.name from rowlock_ticket w
          where w.session = $1::bigint and w.thread is not null and {is_mode(w)} = 1
         union
         select o.name
           from reach r
                cross join lateral (
                    (select l.session, l.thread from rowlock_lock l where l.name = r.name offset 0)
                    union all
                    (select s.session, s.thread from rowlock_hold s where s.name = r.name offset 0)
                    union all
                    (select w.session, w.thread from rowlock_ticket w where w.name = r.name offset 0)) p
                cross join lateral (
                    select o.name from rowlock_ticket o
                     where o.session = p.session
                       and (o.thread = p.thread or o.blocks is not null or o.base is not null)
                       and {is_mode(o)} = 1 offset 0) o)
select h.name, null::bigint, h.grant_id, h.session, h.thread, h.note, h.host, h.program, h.pid, null::bigint, 0::bigint,
       null::bigint, null::text
  from reach r
       cross join lateral (
           select l.name, l.grant_id, l.session, l.thread, l.note, s.host, s.program, s.pid
             from rowlock_lock l join rowlock_session s on s.id = l.session
            where l.name = r.name and l.thread is not null and not {holder_gone} offset 0) h
union all
select h.name, null, h.grant_id, h.session, h.thread, h.note, h.host, h.program, h.pid, h.weight, 0, null, null
  from reach r
       cross join lateral (
           select s.name, s.grant_id, s.session, s.thread, s.note, {weight_of(s)} as weight, m.host, m.program, m.pid
             from rowlock_hold s join rowlock_session m on m.id = s.session
            where s.name = r.name and s.thread is not null and not {hold_over} offset 0) h
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, w.host, w.program, w.pid, w.weight,
       {micros(w.enqueued_at)}, w.base, w.blocks
  from reach r
       cross join lateral (
           select w.*, m.host, m.program, m.pid
             from rowlock_ticket w join rowlock_session m on m.id = w.session
            where w.name = r.name and w.thread is not null and {waits} offset 0) w

-- statement grant_next
-- Grants a free lock to the first ticket of its queue, if that wants all of it, deletes the ticket and notifies its
-- session: all three or none, in one durable commit. Any client may run it at any time.
--
-- p and h judge in this statement's snapshot: no holder, or one that has ended, and a first waiter. If that is a counted
-- one, or counted holds are in the way, nothing is locked: the statement says which, and grant_counted serves it. f then
-- locks the lock's row if it still has the probed token: every grant changes the token, and a
-- row that is free at one token is never held at it again, so a judgement that became stale during the wait
-- for the lock fails. f waits, and does not skip: if a holder released while we were skipping, no client
-- would serve its waiters. c locks the first ticket that can be
-- served, and steps over one that was cancelled, or whose limit has passed, meanwhile; if a counted one follows, nothing
-- is granted.
-- Both rows are written only with both locks: no ticket is lost without a grant, and no grant is made to a
-- ticket whose cancellation was confirmed. Lock first, then one ticket: a transaction that has locked a
-- ticket waits for nothing more, so no cycle can close.
--
-- EXISTS is evaluated once, first: without the lock no ticket is read, and none is judged before the wait. c
-- sees the tickets of the snapshot: one whose enqueue was answered before another was sent is in it whenever
-- the other is. acquired_at and the deadline are read after the wait for the row's lock.
--
-- A promise of the row's next token is kept (to): see hand_over. It changes with the token only, so what the
-- snapshot says of it is true of the locked row. A reserved waiter whose session was opened on a server before this one
-- cannot be served and may believe that it was: until that session is over, no waiter is served. Two branches, for the
-- promised waiter and for the first: with one condition for both the planner expects one row, and reads and sorts the
-- whole queue.
--
-- The watermark (`served`) moves to this ticket, unless it was set back after our snapshot, for an entry that
-- the snapshot did not show (reset_watermark): such a watermark stays.
--
-- If the waiter's session ends at this moment the lock names an ended session: free by definition. The
-- client that ended it checks its queues and locks afterwards. If this statement had not committed then,
-- that client's grant_next waited for the row and checked again.
--
-- An entry of a request for several locks is not served alone, and no entry behind it is served: its session
-- is notified, with the token 0, and takes all of them itself (multi_take). Its ticket stays locked until the
-- commit: a client that cancels it checks the lock after that.
-- $1 name  $2 1 = notify. A commit that cannot notify (54000: the server's queue of notifications is full) undoes the
-- grant with it: it is sent again with 0.
-- → 0: nothing to serve, 1: there was, 2: the first waiter is a counted one; 1 if it has no row; the waiter's session,
--   grant id, token (0: notified, and nothing was granted); its notification; of a holder that has ended and is to be
--   cleared (clear_sole), the row's token and session. 1 without a waiter: another client was faster, try again.
with p as materialized (
         select l.name, l.token, l.served, l.session, {reserved_for} as reserved_for, {free} as free
           from (values (1)) as one
                left join rowlock_lock l on l.name = $1::text
                left join rowlock_session s on s.id = l.session
          where {holder_gone}),
     h as materialized (
         select p.*,
                case when p.reserved_for is null
                     then (select (w.weight is not null)::int
                             from rowlock_ticket w join rowlock_session m on m.id = w.session
                            where w.name = $1::text and {waits}
                              and (w.ticket > coalesce(p.served, 0) - 256 or w.ticket < 0)
                            order by w.ticket limit 1)
                     else (select 0 from rowlock_ticket w join rowlock_session m on m.id = w.session
                            where w.grant_id = p.reserved_for and w.name = $1::text and {waits}) end as counted
           from p),
     f as materialized (
         select h.reserved_for, case when l.served < h.served then l.served end as rewound
           from h join rowlock_lock l on l.name = h.name and l.token = h.token
          where h.counted = 0 and h.free
            for update of l),
     first as materialized (
         select {candidate}
           from rowlock_ticket w join rowlock_session m on m.id = w.session
          where exists (select from f where f.reserved_for is null) and {in_queue} and {waits}
          order by w.ticket limit 1 for update of w),
     promised as materialized (
         select {candidate}
           from rowlock_ticket w join rowlock_session m on m.id = w.session
          where w.grant_id = (select f.reserved_for from f) and w.name = $1::text and {waits}
            for update of w),
     c as materialized (
         select first.* from first union all select promised.* from promised),
     g as materialized (
         select c.* from c where c.members = 1 and c.weight is null),
     d as (
         delete from rowlock_ticket w using g where w.name = g.name and w.ticket = g.ticket),
     u as (
         update rowlock_lock as l
            set token = greatest(l.token, (select o.floor from rowlock_token_floor o)) + 1
                        + (coalesce(l.successor, g.grant_id) <> g.grant_id)::int,
                successor = null,
                session = g.session, grant_id = g.grant_id, thread = g.thread, note = g.note,
                acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
                served = coalesce((select f.rewound from f), g.ticket),
                deadline = clock_timestamp() + g.deadline_us::float8 * interval '1 microsecond'
           from g where l.name = $1::text
         returning l.token),
     n as materialized (
         select pg_notify('rowlock_' || t.wake_address::text, {proved_words})
           from (select c.wake_address, c.wake_secret,
                        c.grant_id::text || ' ' || coalesce(u.token, 0)::text || ' 0' as words
                   from c left join u on true
                  where c.weight is null) t
          where $2::int = 1)
select case when h.counted is null then 0 when h.counted = 1 or c.weight is not null then 2 else h.free::int end,
       (h.counted is not null and h.name is null)::int,
       case when c.weight is null then c.session end, c.grant_id, coalesce(u.token, 0), (select count(*) from n),
       case when h.session is not null then h.token end, h.session
  from (values (1)) as one left join h on true left join c on true left join u on true

-- statement grant_counted
-- Grants the first waiters of a queue what they wait for, as far as there is room: the longest prefix of the
-- queue that fits, so no request overtakes a larger one. One that wants all of the lock (no weight) counts as more than
-- any room, and ends the prefix. Locks the lock's row, then tickets, then inserts; it waits for no hold. What is free is
-- read under the lock, where nobody holds all of it: `session is null` is the row's own column, judged again after a
-- wait. A ticket that was deleted since the statement
-- began is skipped by the re-check of its lock. A ticket that commits meanwhile is not seen: its client checks
-- after its commit. Only sessions that live on this server are given any. The commit is asynchronous for the
-- reason of take_permits: a waiter reads its hold, and then flushes, before its caller learns of it. At most 256
-- at a time: then there may be more. The watermark stays: it is where looks begin, and those served leave.
--
-- A promised token is passed over; while a waiter that is promised it can be served, it goes before all others, and
-- nothing is granted here (docs/adr/0023).
--
-- An entry of a request for several is not served alone, and no entry behind it is served: if it is the first that
-- fits, it is returned with the token 0, and its client takes all of them itself (multi_take_permits).
--
-- An upgrade adds no hold: the row names it, for the proof of upgrade_lock. It is granted if what its ticket lacks and `used` are
-- all of the lock: its hold alone is counted. That this is the hold of the snapshot, the token says, which is compared. If
-- another client was granted anything since, that holds it, and looks at the queue when it gives it back; so does whoever
-- has ended the hold.
-- $1 name
-- → 1 = the first waiter wants all of the lock and may be granted it, or a sole holder is in the way, which may have
--   ended: grant_next finds out; of each that was served: session, grant id, token (0: it was not, and is to be
--   notified); its session's wake-up address, secret and mailbox. One row with NULLs if nobody was.
with f as materialized (
         select greatest(p.token, (select o.floor from rowlock_token_floor o)) + (p.successor is not null)::int as token,
                {room(p)} as room, p.used, p.token = (select b.token from rowlock_lock b where b.name = $1::text) as unchanged
           from rowlock_lock p
          where p.name = $1::text and p.session is null and {room(p)} > 0 and {waited_at(p)}
            and not {promised_at(p)}
            and set_config('synchronous_commit', 'off', true) = 'off'
            for update of p),
     k as materialized (
         select w.ticket, w.session, w.grant_id, w.weight, w.thread, w.note, w.deadline_us, w.base,
                w.members, m.wake_address, m.wake_secret, m.mailbox
           from rowlock_ticket w join rowlock_session m on m.id = w.session
          where exists (select from f) and w.name = $1::text
            and (w.ticket < 0
                 or w.ticket > (select coalesce(max(b.served), 0) - 256 from rowlock_lock b where b.name = $1::text))
            and {waits}
          order by w.ticket limit 256 for update of w),
     s as materialized (
         select q.*
           from (select k.*, (sum(coalesce(k.weight, 2000000000)) over (order by k.ticket))::bigint as until_here,
                        row_number() over (order by k.ticket) as place,
                        bool_or(k.weight is null) over (order by k.ticket) as behind_sole,
                        count(*) filter (where k.members > 1) over (order by k.ticket) as several from k) q
          where q.until_here <= (select f.room from f) and not q.behind_sole
            and q.several <= (q.members > 1)::int and (q.base is null or (select f.unchanged and f.used + q.weight = 1999999999 from f))),
     c as materialized (
         select s.* from s where s.members = 1),
     d as (
         delete from rowlock_ticket w using c where w.name = $1::text and w.ticket = c.ticket),
     i as (
         insert into rowlock_hold (name, grant_id, session, weight, token, thread, note,
                                   acquired_at, deadline)
         select $1::text, c.grant_id, c.session, c.weight, f.token + c.place, c.thread, c.note,
                clock_timestamp(),
                clock_timestamp() + c.deadline_us::float8 * interval '1 microsecond'
           from c, f where c.base is null),
     u as (
         update rowlock_lock p
            set used = p.used + b.weight, grant_id = b.upgrade, token = b.token, successor = null, changed_at = clock_timestamp()
           from (select coalesce(sum(c.weight) filter (where c.base is null), 0)::bigint as weight,
                        max(c.grant_id) filter (where c.base is not null) as upgrade, max(f.token + c.place) as token
                   from c, f having count(*) > 0) b
          where p.name = $1::text)
select case when s.session is not null then 0
            when exists (select from f)
            then coalesce((select (k.weight is null and f.used = 0)::int from k, f order by k.ticket limit 1), 0)
            else coalesce((select (b.session is not null or b.successor is not null)::int
                             from rowlock_lock b where b.name = $1::text), 1) end,
       s.session, s.grant_id, case when s.members = 1 then f.token + s.place else 0 end,
       s.wake_address, s.wake_secret, s.mailbox
  from (values (1)) as one left join s on true left join f on true order by s.ticket

-- statement hand_over
-- Releases a lease if it is still this very grant, straight to the first waiter that can be served and that this statement's
-- snapshot shows, with the proof of grant_next; frees it if the snapshot shows none. A ticket that commits
-- after the snapshot is not seen: a client that freed the lease checks for waiters afterwards.
--
-- `mine` locks the row first; only then is a ticket searched, locked and judged. If the lease is not this
-- grant any more, `mine` is empty, and with it the bound of the tickets, so none is touched. Without a waiter
-- the commit is asynchronous ($4), like that of release and for its reason. A hand-over is durable, like
-- every grant, and notifies the waiter's session, no other. `seen` is of the snapshot, `served` of the locked
-- row: a watermark that was set back in between (reset_watermark) stays. If the row promises its next token
-- to a waiter that can be served, that waiter gets the lease; any other waiter gets a token beyond (hand_over_to
-- says why).
--
-- If the first entry is one of a request for several locks, the lock is freed, and the session of that
-- request notified with the token 0, as in grant_next. If it is a counted one, the lock is freed, and grant_counted
-- follows.
-- $1 name  $2 my session  $3 grant id  $4 1 = may commit asynchronously if no waiter is served
-- $5 1 = notify (grant_next says when not)
-- → 1 if it was freed or handed over; the waiter's session, grant id, token (0: freed), or NULL; two columns to ignore;
--   1 = a counted waiter is the first
with mine as materialized (
         select (select b.served from rowlock_lock b where b.name = $1::text) as seen, l.served,
                {reserved_for} as reserved_for
           from rowlock_lock l
          where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
            for update of l),
     first as materialized (
         select {candidate}
           from rowlock_ticket w join rowlock_session m on m.id = w.session
          where w.name = $1::text
            and w.ticket > (select coalesce(mine.seen, 0) - 256 from mine where mine.reserved_for is null) and {waits}
          order by w.ticket limit 1 for update of w),
     promised as materialized (
         select {candidate}
           from rowlock_ticket w join rowlock_session m on m.id = w.session
          where w.grant_id = (select mine.reserved_for from mine) and w.name = $1::text and {waits}
            for update of w),
     c as materialized (
         select first.* from first union all select promised.* from promised),
     served as (
         select c.* from c where c.members = 1 and c.weight is null),
     d as (
         delete from rowlock_ticket w using served c where w.name = c.name and w.ticket = c.ticket),
     u as (
         update rowlock_lock as l
            set token = case when c.ticket is null then l.token
                             else greatest(l.token,
                                           (select o.floor from rowlock_token_floor o)) + 1
                                  + (coalesce(l.successor, c.grant_id) <> c.grant_id)::int end,
                successor = case when c.ticket is null then l.successor end,
                session = c.session, grant_id = c.grant_id, thread = c.thread, note = c.note,
                acquired_at = case when c.ticket is not null then clock_timestamp() end,
                changed_at = clock_timestamp(),
                served = case when mine.served < mine.seen then mine.served else coalesce(c.ticket, l.served) end,
                deadline = clock_timestamp() + c.deadline_us::float8 * interval '1 microsecond'
           from mine left join served c on true
          where l.name = $1::text
         returning l.name, l.session, l.token)
select (u.name is not null)::int, c.session, c.grant_id, case when u.session is null then 0 else u.token end,
       case when c.session is not null and $5::int = 1
            then (select pg_notify('rowlock_' || t.wake_address::text, {proved_words})::text
                    from (select c.wake_address, c.wake_secret,
                                 c.grant_id::text || ' ' || case when u.session is null then 0 else u.token end::text
                                 || ' 0' as words) t) end,
       case when u.session is null and $4::int = 1 then set_config('synchronous_commit', 'off', true) end,
       exists (select from c where c.weight is not null)::int
  from (values (1)) as one left join u on true left join c on c.weight is null

-- statement leave
-- The last statement of a client whose session no lease and no ticket names: removes the session and returns
-- which of the names that it has released lately have a live waiter, to be served. It is delete_session and
-- names_with_waiters in one round trip. The releases were committed before this snapshot was taken; a client
-- whose ticket commits after the snapshot checks the lease afterwards, like every client that writes one, and
-- finds it free. The check does not read the deleted row, or may read it or not: a session without tickets
-- has no waiter. If the reply is lost the session is gone or expires, and waiters find the lease by
-- their own polls.
-- $1 session  $2 … $17 names; may repeat
with gone as (
         delete from rowlock_session where id = $1::bigint)
select n.name
  from (select distinct u.name
          from pg_catalog.unnest(array[$2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text,
                   $10::text, $11::text, $12::text, $13::text, $14::text, $15::text, $16::text,
                   $17::text]) as u(name) offset 0) n
 where {waited_n}

-- statement hand_over_to
-- Hands a lease that is this very grant to a waiter that its holder has seen before (confirm_and_read_next), and promises
-- the token after that to the next: all or nothing. Send hand_over when this changes nothing: the waiter has
-- gone, or the lease is not this grant any more.
--
-- The lease's row first, then the ticket, as everywhere. A ticket that was cancelled after this snapshot is
-- not there to be deleted: then the statement fails, without effect. What was seen may be old: a waiter whose
-- session is over, or was opened on another server, gets nothing. That is judged in this snapshot, as in
-- grant_next; a session that ends after it leaves a lease that names an ended session, which is free. So does a waiter
-- whose limit has passed; that is judged again with the deletion, since the update may have waited for a fence.
--
-- The commit is asynchronous ($10) if the row's promise names this waiter and its holder has made that
-- durable. A crash may then lose that the lease was handed over, not to whom it goes: the row comes back with
-- its old holder, whose client releases it again (release); as long as the waiter's session lives no other
-- client gets the lease, and none ever gets this token, as every other grant skips it. Two things follow: the
-- waiter, notified before the crash, can hold no token that another was given; and its own transactions are
-- behind this one in the log, so none of them survives without it. Queue scans that begin where this leaves
-- the watermark must find the next waiter ($11; fragment in_queue): a promise to an entry that no scan finds
-- would stop the queue.
-- $1 name  $2 my session  $3 grant id  $4 ticket  $5 its session  $6 its grant id  $7 thread  $8 note
-- $9 own deadline in µs, or NULL  $10 1 = asynchronously  $11 grant id of the next waiter, or NULL
-- $12 the watermark that was seen: one that was set back since then stays (reset_watermark), and so does any
--     below this number, for a waiter that overtakes others (releaser::hand_over_to)
-- $13 1 = notify the waiter's session, by $14 its wake-up address and $15 its secret (grant_next says when not);
-- else the client that sends this notifies it, once this has committed
-- → token; or no row
with u as (
         update rowlock_lock as l
            set token = l.token + 1 + (coalesce(l.successor, $6::bigint) <> $6::bigint)::int,
                session = $5::bigint, grant_id = $6::bigint, thread = $7::text, note = $8::text,
                acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
                served = case when coalesce(l.served, 0) < $12::bigint then l.served else $4::bigint end,
                deadline = clock_timestamp() + $9::bigint::float8 * interval '1 microsecond',
                successor = $11::bigint
          where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
            and exists (select from rowlock_ticket w
                         where w.name = $1::text and w.ticket = $4::bigint and w.grant_id = $6::bigint
                           and coalesce(w.waits_until > clock_timestamp(), true) offset 0)
            and exists (select from rowlock_session m where m.id = $5::bigint and {live} offset 0)
         returning l.token),
     d as (
         delete from rowlock_ticket w
          where w.name = $1::text and w.ticket = (select $4::bigint from u)
            and coalesce(w.waits_until > clock_timestamp(), true)
         returning w.ticket)
select u.token,
       case when $10::int = 1 then set_config('synchronous_commit', 'off', true) end,
       case when not exists (select from d) then ('rowlock: the waiter has gone, token ' || u.token::text)::int end,
       case when $13::int = 1
            then (select pg_notify('rowlock_' || $14::bigint::text, {proved_words})::text
                    from (select $15::text as wake_secret,
                                 $6::bigint::text || ' ' || u.token::text || ' ' || $10::int::text as words) t) end
  from u

-- statement confirm_and_read_next
-- A client sends this soon after it learned of a grant, while the lease is held: it reads whether the table
-- agrees, and who comes next, so that the release finds it prepared (hand_over_to). It neither writes nor locks
-- the lease's row: fences and releases do not meet it.
--
-- A grant whose commit was asynchronous ($4), and a promise that the row makes, become durable by it: some
-- row must change for the commit to wait for the disk, and what was committed before lies before it in the
-- log. That row is the client's own session: only its heartbeat and clients that end it meet this for the
-- time of a commit, and what it is judged by (expires_at, ended) is not written. Without that row nothing was
-- made durable, and no promise is returned.
--
-- The waiter to which the next token is promised comes first, if it can be served; then the first two of the
-- queue, one of which may be the same. Neither an entry of a request for several locks, which is promised
-- nothing, nor a counted one, nor what is behind it.
-- $1 name  $2 my session  $3 grant id  $4 1 = make it durable
-- → no row: it is not this grant. Else token, what is left of its own deadline in µs, the watermark,
--   the promise; a waiter: ticket, session, grant id, thread, note, own deadline in µs,
--   what is left of its session in µs, its wake-up address, secret and mailbox, or NULLs;
--   whether its limit is near
with mine as materialized (
         select l.name, l.token, l.deadline, l.served, l.successor from rowlock_lock l
          where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint),
     durable as (
         update rowlock_session s set beats = s.beats + 1
           from mine where s.id = $2::bigint and ($4::int = 1 or mine.successor is not null)
        returning s.id),
     next as (
         (select w.*, m.expires_at, m.wake_address, m.wake_secret, m.mailbox, w.members as most
            from mine join rowlock_ticket w on w.grant_id = mine.successor
                 join rowlock_session m on m.id = w.session
           where {live})
         union all
         (select w.*, max(case when w.weight is null then w.members else 2 end) over (order by w.ticket) as most
            from (select w.*, m.expires_at, m.wake_address, m.wake_secret, m.mailbox
                    from rowlock_ticket w join rowlock_session m on m.id = w.session
                   where w.name = $1::text and w.ticket > (select coalesce(mine.served, 0) - 256 from mine)
                     and {waits}
                   order by w.ticket limit 2) w))
select mine.token, {until(mine.deadline)},
       mine.served, case when exists (select from durable) then mine.successor end,
       next.ticket, next.session, next.grant_id, next.thread, next.note, next.deadline_us,
       {until(next.expires_at)},
       next.wake_address, next.wake_secret, next.mailbox,
       coalesce(next.waits_until < clock_timestamp() + interval '1 s', false)::int
  from mine left join next on next.most = 1

-- statement reset_watermark
-- Sets the watermark back, so that queue scans find this ticket, which was overtaken: see fragment in_queue.
-- It waits for the lease's row as grant_next does; a client that could not lock it tries again.
-- $1 name  $2 ticket
update rowlock_lock set served = $2::bigint where name = $1::text and served > $2::bigint

-- statement release_unwaited
-- Frees a lease if it is still this very grant and has no waiter, alive or dead: release and one index entry
-- more, where hand_over costs the server three times as much. No row changed: not this grant, or there is a
-- ticket, which hand_over finds out. A ticket that commits after this statement's snapshot is not seen: check
-- for waiters afterwards. How it reads the queue: see reacquire.
-- $1 name  $2 my session  $3 grant id  $4 1 = may commit asynchronously, see release
update rowlock_lock l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
 where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
   and (select w.ticket from rowlock_ticket w where w.name = $1::text
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null
   and ($4::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
