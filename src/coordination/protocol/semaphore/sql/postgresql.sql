-- statement take_permits
-- Takes permits, if enough are free and no live session waits for some; an upgrade passes those that wait. The
-- counter decides: the update locks its row, and after a wait for that lock `n <= capacity - used` is judged again
-- on the row as it is. The hold is
-- inserted in the same statement, so `used` is the sum of the holds in every committed state. Waiters and our
-- session are judged as of the beginning of the statement, as in acquire: a ticket that commits later was
-- requested at the same time. A session that ends meanwhile leaves a hold that sweep_permits ends.
-- The row is hot, so the commit is asynchronous ($8) and the row's lock does not last for the disk: no caller learns
-- of the grant before flush_commits has returned. Behind a pooler the connection may outlive a crash of the server
-- between the two, so there the commit is durable.
-- $1 name  $2 my session  $3 grant id  $4 permits  $5 thread  $6 note  $7 own deadline in µs, or NULL
-- $8 1 = asynchronously  $9 kind of the counter  $10 of an upgrade, the grant id of its hold, which must be alive; NULL
-- → grant id, token; no row if nothing was taken
with u as (
         update rowlock_semaphore p
            set used = p.used + $4::bigint,
                token = greatest(p.token, (select f.floor from rowlock_token_floor f)) + 1,
                changed_at = clock_timestamp()
          where p.name = $1::text and p.kind = $9::int and $4::bigint <= p.capacity - p.used
            and case when $10::bigint is null then not {permits_waited}
                     else exists (select from rowlock_permit b
                                   where b.name = $1::text and b.grant_id = $10::bigint and b.session = $2::bigint
                                     and not coalesce(b.deadline <= clock_timestamp(), false)) end
            and exists (select from rowlock_session m where m.id = $2::bigint and {live})
            and ($8::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
         returning p.token)
insert into rowlock_permit (name, grant_id, session, permits, token, thread, note, acquired_at, deadline,
                            kind, base)
select $1::text, $3::bigint, $2::bigint, $4::bigint, u.token, $5::text, $6::text, clock_timestamp(),
       clock_timestamp() + $7::bigint::float8 * interval '1 microsecond', $9::int, $10::bigint
  from u
returning grant_id, token

-- statement take_permits_together
-- `take_permits` for several requests of one session, by one commit: for as many, from the first on, as fit together.
-- None of them is an upgrade. The counter's row is locked first, and what is free is read under the lock; the lock judges
-- the row as it is then.
-- $1 name  $2 my session  $3 1 = asynchronously  $4 kind of the counter
-- arrays: $5 grant ids  $6 permits  $7 threads  $8 notes  $9 own deadlines in µs
-- → grant id, token of each that was granted
with f as materialized (
         select greatest(p.token, (select o.floor from rowlock_token_floor o)) as token,
                p.capacity - p.used as free
           from rowlock_semaphore p
          where p.name = $1::text and p.kind = $4::int and p.used < p.capacity and not {permits_waited}
            and exists (select from rowlock_session m where m.id = $2::bigint and {live})
            and ($3::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
            for update of p),
     c as materialized (
         select q.*
           from (select r.*, (sum(r.permits) over (order by r.place))::bigint as until_here
                   from unnest($5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::bigint[]) with ordinality
                        as r (grant_id, permits, thread, note, deadline_us, place)) q
          where q.until_here <= (select f.free from f)),
     u as (
         update rowlock_semaphore p set used = p.used + b.permits, token = b.token, changed_at = clock_timestamp()
           from (select sum(c.permits)::bigint as permits, max(f.token + c.place) as token
                   from c, f having count(*) > 0) b
          where p.name = $1::text)
insert into rowlock_permit (name, grant_id, session, permits, token, thread, note, acquired_at, deadline, kind)
select $1::text, c.grant_id, $2::bigint, c.permits, f.token + c.place, c.thread, c.note, clock_timestamp(),
       clock_timestamp() + c.deadline_us::float8 * interval '1 microsecond', $4::int
  from c, f
returning grant_id, token

-- statement flush_commits
-- A commit that writes one record to the log and no table, and waits for the disk, and for a standby where
-- commits do: every commit of this server before it is as durable as it is when it returns. Needs no right.
select pg_catalog.pg_logical_emit_message(true, 'rowlock'::text, ''::text)

-- statement flush_taken_permits
-- `flush_commits` behind a take whose answer is still under way: nothing is written if nothing was taken.
-- $1 name  $2 my session  $3 the grant ids that were asked for
select pg_catalog.pg_logical_emit_message(true, 'rowlock'::text, ''::text)
 where exists (select from pg_catalog.unnest($3::bigint[]) as r (id)
                      cross join lateral (
                          select from rowlock_permit s
                           where s.name = $1::text and s.grant_id = r.id and s.session = $2::bigint offset 0) h)

-- statement give_permits
-- Ends one hold: deletes it and lowers the counter in one statement. It names the grant, so a second release
-- changes nothing. Hold first, counter second, as in sweep_permits: no grant waits for a hold, so no circle
-- closes. The commit is asynchronous ($4), for the reason of take_permits. If a crash loses it the hold is back, and
-- its client, whose connection broke, compares and ends it again: the next grant that a client learns of lies
-- behind it in the log. Behind a pooler the client may not notice the crash, so there the commit is durable.
-- Then check the queue (grant_permits).
-- $1 name  $2 my session  $3 grant id  $4 1 = asynchronously
-- → how many holds were ended, 1 or 0
with d as (
         delete from rowlock_permit s
          where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint
         returning s.permits),
     u as (
         update rowlock_semaphore p set used = p.used - d.permits, changed_at = clock_timestamp()
           from d
          where p.name = $1::text
            and ($4::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
         returning 1)
select (select count(*) from d), (select count(*) from u)

-- statement give_permits_together
-- `give_permits` for several holds of one semaphore and session, by one commit: holds in the order of their keys, as
-- reclaim_permit, then the counter. Only holds that were never fenced are sent here, so no fenced transaction has locked
-- them. Each is looked up by its key, which OFFSET 0 ensures: by the session the server would step over all that it has
-- given back, until vacuum comes. All ids are in that range: it makes the planner expect one row, and delete by ctid
-- instead of reading a table that is small only now. One that was changed since this snapshot is locked as its newest version, whose ctid
-- the deletion does not find: it is left to give_permits.
-- $1 name  $2 my session  $3 grant ids  $4 1 = asynchronously
-- → the grant ids of the holds that were ended
with k as materialized (
         select h.place
           from (select r.id from pg_catalog.unnest($3::bigint[]) as r (id)
                   where r.id between 0 and 9223372036854775807 order by r.id) r
                cross join lateral (
                    select s.ctid as place from rowlock_permit s
                     where s.name = $1::text and s.grant_id = r.id and s.session = $2::bigint
                    offset 0 for update of s) h),
     d as (
         delete from rowlock_permit s using k where s.ctid = k.place
         returning s.grant_id, s.permits),
     u as (
         update rowlock_semaphore p
            set used = p.used - (select sum(d.permits)::bigint from d), changed_at = clock_timestamp()
          where p.name = $1::text and exists (select from d)
            and ($4::int = 0 or set_config('synchronous_commit', 'off', true) = 'off'))
select d.grant_id from d

-- statement grant_permits
-- Gives permits to the first waiter, and to those behind it as far as the permits go: the longest prefix of the
-- queue that fits, so no request overtakes a larger one. Locks the counter's row, then tickets, then inserts;
-- it waits for no hold. What is free is read under the lock; a ticket that was deleted since the statement
-- began is skipped by the re-check of its lock. A ticket that commits meanwhile is not seen: its client checks
-- after its commit. Only sessions that live on this server are given any. The commit is asynchronous for the
-- reason of take_permits: a waiter reads its hold, and then flushes, before its caller learns of it. At most 256
-- at a time: then there may be more.
--
-- An entry of a request for several is not served alone, and no entry behind it is served: if it is the first that
-- fits, it is returned with the token 0, and its client takes all of them itself (multi_take_permits).
-- $1 name
-- → of each that was served: session, grant id, token (0: it was not, and is to be notified); its session's wake-up
--   address, secret and mailbox
with f as materialized (
         select greatest(p.token, (select o.floor from rowlock_token_floor o)) as token,
                p.capacity - p.used as free
           from rowlock_semaphore p
          where p.name = $1::text and p.used < p.capacity and {permits_waited}
            and set_config('synchronous_commit', 'off', true) = 'off'
            for update of p),
     k as materialized (
         select w.ticket, w.session, w.grant_id, w.weight as permits, w.thread, w.note, w.deadline_us, w.kind, w.base,
                w.members, m.wake_address, m.wake_secret, m.mailbox
           from rowlock_ticket w join rowlock_session m on m.id = w.session
          where exists (select from f) and w.name = $1::text and {waits_for_permits}
          order by w.ticket limit 256 for update of w),
     s as materialized (
         select q.*
           from (select k.*, (sum(k.permits) over (order by k.ticket))::bigint as until_here,
                        row_number() over (order by k.ticket) as place,
                        count(*) filter (where k.members > 1) over (order by k.ticket) as several from k) q
          where q.until_here <= (select f.free from f)
            and q.several <= (q.members > 1)::int),
     c as materialized (
         select s.* from s where s.members = 1),
     d as (
         delete from rowlock_ticket w using c where w.name = $1::text and w.ticket = c.ticket),
     i as (
         insert into rowlock_permit (name, grant_id, session, permits, token, thread, note,
                                     acquired_at, deadline, kind, base)
         select $1::text, c.grant_id, c.session, c.permits, f.token + c.place, c.thread, c.note,
                clock_timestamp(),
                clock_timestamp() + c.deadline_us::float8 * interval '1 microsecond', c.kind, c.base
           from c, f),
     u as (
         update rowlock_semaphore p set used = p.used + b.permits, token = b.token, changed_at = clock_timestamp()
           from (select sum(c.permits)::bigint as permits, max(f.token + c.place) as token
                   from c, f having count(*) > 0) b
          where p.name = $1::text)
select s.session, s.grant_id, case when s.members = 1 then f.token + s.place else 0 end,
       s.wake_address, s.wake_secret, s.mailbox
  from s, f order by s.ticket

-- statement sweep_permits
-- Ends the holds of sessions that have ended or are gone, and those past their own deadline: a thousand at a
-- time. A dead session stays dead, and the lock judges a deadline again. Holds that another transaction has
-- locked are left for a later sweep. If a crash loses the commit, another sweep ends them again. Then check
-- the queue (grant_permits).
-- $1 name
-- → how many holds, how many permits
with k as materialized (
         select s.grant_id
           from rowlock_permit s left join rowlock_session m on m.id = s.session
          where s.name = $1::text and {hold_over}
          order by s.grant_id limit 1000 for update of s skip locked),
     d as (
         delete from rowlock_permit s using k
          where s.name = $1::text and s.grant_id = k.grant_id
         returning s.permits),
     u as (
         update rowlock_semaphore p
            set used = p.used - (select sum(d.permits)::bigint from d), changed_at = clock_timestamp()
          where p.name = $1::text and exists (select from d)
            and set_config('synchronous_commit', 'off', true) = 'off'
         returning 1)
select (select count(*) from d), (select coalesce(sum(d.permits), 0)::bigint from d), (select count(*) from u)

-- statement shrink_permits
-- Lowers how many permits a hold has, and the counter, in one statement, hold first, as give_permits. Durable: a
-- downgrade is rare, and a crash that lost it would leave the larger hold to a client that does not know of it. It
-- names the number before, so a second one changes nothing. Then check the queue (grant_permits).
-- $1 name  $2 my session  $3 grant id  $4 permits before  $5 permits from now on
-- → how many holds were changed, 1 or 0
with s as (
         update rowlock_permit s set permits = $5::bigint
          where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint
            and s.permits = $4::bigint
         returning 1),
     u as (
         update rowlock_semaphore p
            set used = p.used - ($4::bigint - $5::bigint), changed_at = clock_timestamp()
          where p.name = $1::text and exists (select from s)
         returning 1)
select (select count(*) from s), (select count(*) from u)

-- statement hold_to_end
-- The hold that a token names, for an operator who ends it: that of an upgrade names the hold that it was added to.
-- Reads only.
-- $1 name  $2 token
-- → session, grant id
select s.session, coalesce(s.base, s.grant_id)
  from rowlock_permit s left join rowlock_session m on m.id = s.session
 where s.name = $1::text and s.token = $2::bigint and not {hold_over}

-- statement lock_permit
-- Locks a hold, by primary key. Hold first, then session, as with leases (docs/adr/0010).
-- $1 name  $2 grant id  $3 session
select 1 from rowlock_permit s
 where s.name = $1::text and s.grant_id = $2::bigint and s.session = $3::bigint
   for update

-- statement shorten_permit
-- Sets the deadline of a hold, and of what an upgrade added to it, to the time at which its session would expire
-- without another heartbeat, or to so long from now, whichever is later, unless that ends before, and marks it. Never
-- later than it was. The transaction has locked the hold, and then the session by bump_revision: as shorten_lease. An
-- upgrade that is committed later is not believed: its client reads the hold afterwards (recheck_permit).
-- $1 name  $2 grant id  $3 session  $4 how long from now, in µs  $5 who asks, or NULL: the holder gives it up at once
-- $6 why
update rowlock_permit s
   set deadline = least(s.deadline, greatest(m.expires_at, clock_timestamp() + $4::bigint::float8 * interval '1 microsecond')),
       requested = 1, asked_by = $5::text, reason = $6::text
  from rowlock_session m
 where s.name = $1::text and $2::bigint in (s.grant_id, s.base) and s.session = $3::bigint and m.id = $3::bigint

-- statement end_permit
-- Ends a hold from outside, with what an upgrade added to it: from the commit on every fence of it fails and every
-- judgement finds it over (hold_over), and any client may sweep it. A fence has the row locked: then this waits for that
-- transaction. The hold is locked before (lock_permit), and bump_revision follows. 'epoch' says that it was ended by
-- force. An upgrade that is committed later is not believed: its client reads the hold afterwards (recheck_permit).
-- The note becomes who did it: a history records it.
-- $1 name  $2 grant id  $3 session  $4 by whom, or NULL
update rowlock_permit s set deadline = 'epoch', note = coalesce($4::text, s.note)
 where s.name = $1::text and $2::bigint in (s.grant_id, s.base) and s.session = $3::bigint

-- statement recheck_permit
-- Reads a hold after an upgrade of it was granted: behind an operator who ends it, or asks for it, and has it locked.
-- An operator who locks it later finds the upgrade.
-- $1 name  $2 my session  $3 grant id
-- → what is left of its own deadline in µs, or NULL; whether another client has asked for its release
select {until(s.deadline)}, s.requested
  from rowlock_permit s
 where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint
   for share

-- statement set_capacity
-- Changes how many permits a semaphore has; less than `used` is allowed. Durable. Then check the queue (grant_permits).
-- $1 name  $2 capacity
update rowlock_semaphore p set capacity = $2::bigint where p.name = $1::text and p.kind = 0

-- statement create_semaphore
-- Makes a semaphore or a shared_mutex, unless there is one of this name; and none of a name that leases use, which would
-- exclude none of them.
-- $1 name  $2 capacity  $3 kind
insert into rowlock_semaphore (name, capacity, kind, changed_at)
select $1::text, $2::bigint, $3::int, clock_timestamp()
 where not exists (select from rowlock_lease l where l.name = $1::text)
on conflict (name) do nothing

-- statement semaphore_state
-- How a semaphore stands; reads only.
-- $1 name  $2 my session
-- → capacity and used, NULL if there is none; whether my session lives, whether a live session waits for permits;
--   its kind
select p.capacity, p.used,
       (select count(*) from rowlock_session m where m.id = $2::bigint and {live}),
       {permits_waited}::int, p.kind
  from (values (1)) as one left join rowlock_semaphore p on p.name = $1::text

-- statement find_permits
-- Finds a hold by its grant id: of a take whose reply was lost, or of an entry that may have been served.
-- $1 name  $2 my session  $3 grant id
-- → token, what is left of its own deadline in µs, or NULL; permits
select s.token,
       {until(s.deadline)},
       s.permits
  from rowlock_permit s
 where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint

-- statement permit_entries
-- All entries of a session in the queues of semaphores, in one snapshot; reads only.
-- $1 my session
-- → whether my session lives; name, grant id, ticket, position (0: it cannot be served), whether the first
--   waiter of the queue can be served, whether the counter is there, in how many queues the request of that first waiter
--   has an entry. One row with NULLs if there is no entry.
with mine as materialized (
         select w.name, w.grant_id, w.ticket from rowlock_ticket w
          where w.session = $1::bigint and w.weight is not null),
     place as materialized (
         select w.name, w.ticket, row_number() over (partition by w.name order by w.ticket) as position,
                pg_catalog.first_value(w.weight) over (partition by w.name order by w.ticket) as first,
                pg_catalog.first_value(w.members) over (partition by w.name order by w.ticket) as members
           from (select distinct mine.name from mine) n
                join rowlock_ticket w on w.name = n.name
                join rowlock_session m on m.id = w.session
          where {waits_for_permits})
select (select count(*) from rowlock_session m where m.id = $1::bigint and {live}),
       mine.name, mine.grant_id, mine.ticket, coalesce(place.position, 0),
       coalesce(place.first <= p.capacity - p.used, false)::int, (p.name is not null)::int,
       coalesce(place.members, 1)
  from (values (1)) as one
       left join mine on true
       left join place on place.name = mine.name and place.ticket = mine.ticket
       left join rowlock_semaphore p on p.name = mine.name
 order by mine.ticket

-- statement permit_holders
-- Whether a semaphore has permits to be taken back, or when; reads only.
-- $1 name
-- → whether a session that holds permits has expired, but is not ended; whether there are holds that have ended
--   (sweep_permits); until the next of the others ends without a heartbeat, in µs, NULL: none; permits that are free,
--   NULL: no counter
select coalesce(bool_or(not m.ended and m.expires_at <= clock_timestamp()), false)::int,
       coalesce(bool_or({hold_over}), false)::int,
       {until(min(least(m.expires_at, s.deadline)) filter (where not {hold_over} and m.expires_at > clock_timestamp()))},
       (select p.capacity - p.used from rowlock_semaphore p where p.name = $1::text)
  from rowlock_permit s left join rowlock_session m on m.id = s.session
 where s.name = $1::text

-- statement expired_holders
-- Some of the sessions that hold permits of a semaphore and have expired, but are not ended; reads only. Each is
-- ended by a conditional write of its own, before its permits may be taken back (I3).
-- $1 name
select distinct m.id
  from rowlock_permit s join rowlock_session m on m.id = s.session
 where s.name = $1::text and not m.ended and m.expires_at <= clock_timestamp()
 limit 64

-- statement permits_of
-- The holds of a session, to compare a holder's belief with the table. By the index on session, reads only.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs, or NULL, whether it was ended by force, permits,
--   of an upgrade the grant id of its hold, whether another client has asked for its release; who did so within a time,
--   or NULL, and why
select s.name, s.grant_id, s.token,
       {until(s.deadline)},
       coalesce(s.deadline = 'epoch', false)::int, s.permits, s.base, s.requested,
       s.asked_by, s.reason
  from rowlock_permit s where s.session = $1::bigint
 order by s.name, s.token

-- statement semaphores_of_session
-- The semaphores that the end of a session concerns: it has permits of them, or an entry in their queue.
-- $1 session
select s.name from rowlock_permit s where s.session = $1::bigint
union
select w.name from rowlock_ticket w where w.session = $1::bigint and w.weight is not null

-- statement semaphores_to_tend
-- A batch of semaphores for the reaper: those with holds that have ended, with a waiter that may be served, or
-- with a counter that is not the sum of its holds, which should never be. One snapshot, reads only.
-- $1 after which name  $2 batch
-- → name, used less the sum
select t.name, t.difference
  from (select p.name, p.used - (select coalesce(sum(s.permits), 0)::bigint
                                   from rowlock_permit s where s.name = p.name) as difference,
               p.used < p.capacity as free
          from rowlock_semaphore p where p.name > $1::text) t
 where t.difference <> 0
    or exists (select from rowlock_permit s left join rowlock_session m on m.id = s.session
                where s.name = t.name and {hold_over})
    or t.free and exists (select from rowlock_ticket w join rowlock_session m on m.id = w.session
                           where w.name = t.name and {waits_for_permits})
 order by t.name limit $2::bigint

-- statement lock_semaphore
-- Locks a counter. In the next statement of the transaction no take and no grant is under way, and a give that is
-- has not lowered the counter: its hold is still seen.
-- $1 name
select p.used from rowlock_semaphore p where p.name = $1::text for update

-- statement correct_counter
-- Sets a counter to the sum of its holds. The transaction has locked it before (lock_semaphore): the snapshot of
-- this statement is younger than the lock.
-- $1 name
update rowlock_semaphore p
   set used = (select coalesce(sum(s.permits), 0)::bigint from rowlock_permit s where s.name = $1::text)
 where p.name = $1::text
   and p.used <> (select coalesce(sum(s.permits), 0)::bigint from rowlock_permit s where s.name = $1::text)

-- statement idle_shared_mutexes
-- A batch of shared_mutexes, by name, that were not in use for the retention, and whether the settled token floor
-- covers their tokens. One snapshot, reads only.
-- $1 after which name  $2 batch  $3 retention in µs
-- → name, token, whether it may be deleted
select p.name, p.token, (p.token <= f.settled)::int
  from rowlock_semaphore p, rowlock_token_floor f
 where p.name > $1::text and p.kind = 1 and p.used = 0
   and p.changed_at <= clock_timestamp() - $3::bigint::float8 * interval '1 microsecond'
   and not exists (select from rowlock_ticket w where w.name = p.name and w.weight is not null)
 order by p.name limit $2::bigint

-- statement delete_shared_mutex
-- Deletes an idle shared_mutex whose token the settled floor covers: made anew, it goes on above the floor, as a
-- lease does. A take that commits first has changed the token; one that comes later finds no row and makes it
-- anew, and so does the poll of a waiter.
-- $1 name  $2 token
delete from rowlock_semaphore p
 where p.name = $1::text and p.token = $2::bigint and p.kind = 1 and p.used = 0

-- statement counter_exists
-- Whether there is a semaphore, or a shared_mutex, of this name. Reads only.
-- $1 name  $2 kind
select count(*) from rowlock_semaphore p where p.name = $1::text and p.kind = $2::int

-- statement inspect_semaphore
-- A semaphore or a shared_mutex, for people. Reads only.
-- $1 name  $2 kind
-- → {semaphore_info}
select {semaphore_info} from rowlock_semaphore p where p.name = $1::text and p.kind = $2::int

-- statement list_semaphores
-- A page of semaphores or shared_mutexes, for people, by name. Reads only.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many  $5 kind
-- → {semaphore_info}
select {semaphore_info} from rowlock_semaphore p
 where p.name >= $1::text and p.name < $2::text and p.name > $3::text and p.kind = $5::int
 order by p.name limit $4::bigint

-- statement holders_of_permits
-- The holders of a semaphore's permits, for people, the oldest first. Reads only.
-- $1 name  $2 how many at most
-- → session, grant id, owner, host, program, thread, note, pid, µs held, what is left of it in µs, permits, token,
--   of an upgrade the grant id of its hold
select s.session, s.grant_id, m.owner, m.host, m.program, s.thread, s.note, m.pid,
       {since(s.acquired_at)},
       {until(least(m.expires_at, s.deadline))},
       s.permits, s.token, s.base
  from rowlock_permit s join rowlock_session m on m.id = s.session
 where s.name = $1::text and not {hold_over}
 order by s.token limit $2::bigint

-- statement extend_permit
-- Sets a hold's own deadline to so long from now, unless that has passed. The transaction has locked the hold
-- (lock_permit), and has then read that its client knows every change of its session's rows: a request for this
-- release locks the hold before it raises the revision, so one that came first has been seen, and one that comes later
-- shortens this deadline. Never earlier than it was, and always a change: the commit makes an earlier one, whose reply was
-- lost, durable.
-- $1 name  $2 grant id  $3 session  $4 how long from now, in µs
update rowlock_permit s
   set deadline = greatest(s.deadline + interval '1 microsecond',
                           clock_timestamp() + $4::bigint::float8 * interval '1 microsecond')
 where s.name = $1::text and s.grant_id = $2::bigint and s.session = $3::bigint
   and s.deadline > clock_timestamp() and s.requested = 0

-- statement raise_counter_token
-- Draws a token for a hold that is reclaimed. Locks the counter, behind the hold, as a release does.
-- $1 name
update rowlock_semaphore p
   set token = greatest(p.token, (select f.floor from rowlock_token_floor f)) + 1, changed_at = clock_timestamp()
 where p.name = $1::text

-- statement reclaim_permit
-- Moves a hold of a predecessor, ended in this transaction, to our session, with the token drawn before. The transaction
-- has locked the hold (lock_permit). Not one that is over, by its deadline or by force, nor one that another client has
-- asked for. Its thread is of another process.
-- $1 name  $2 grant id  $3 the predecessor's session  $4 my session
update rowlock_permit s
   set session = $4::bigint, token = p.token, acquired_at = clock_timestamp(), thread = null
  from rowlock_semaphore p
 where s.name = $1::text and s.grant_id = $2::bigint and s.session = $3::bigint and p.name = $1::text
   and not coalesce(s.deadline <= clock_timestamp(), false) and s.requested = 0
   and exists (select from rowlock_session m where m.id = $4::bigint and {live})

-- statement any_permits
-- Whether shared_mutexes are held: else nobody waits for one, and the search for deadlocks knows leases alone. Reads only.
select exists (select from rowlock_permit where kind = 1)::int

-- statement mode_deadlocks
-- As `deadlocks`, which see, with the shared_mutexes: the holders and waiters of the locks that our entries lead to, in
-- one snapshot; reads only. An entry with `blocks` is followed from every hold of its session: whose label is which
-- party the caller decides (party_labels.hpp).
-- $1 my session
-- → as deadlocks, with the grant ids of holders; then the kind of the lock (0: a lease, 1: a shared_mutex), permits, when
--   the entry was made, of an upgrade the grant id of its hold, labels of what else it blocks
with recursive reach (kind, name) as (
         (select 0, w.name from rowlock_ticket w
           where w.session = $1::bigint and w.weight is null and w.thread is not null
          union all
          select 1, w.name from rowlock_ticket w
           where w.session = $1::bigint and w.kind = 1 and w.thread is not null)
         union
         select o.kind, o.name
           from reach r
                cross join lateral (
                    (select l.session, l.thread from rowlock_lease l
                      where r.kind = 0 and l.name = r.name offset 0)
                    union all
                    (select w.session, w.thread from rowlock_ticket w
                      where r.kind = 0 and w.name = r.name and w.weight is null offset 0)
                    union all
                    (select s.session, s.thread from rowlock_permit s
                      where r.kind = 1 and s.name = r.name offset 0)
                    union all
                    (select w.session, w.thread from rowlock_ticket w
                      where r.kind = 1 and w.name = r.name and w.weight is not null offset 0)) p
                cross join lateral (
                    (select 0 as kind, o.name from rowlock_ticket o
                      where o.session = p.session and o.weight is null
                        and (o.thread = p.thread or o.blocks is not null) offset 0)
                    union all
                    (select 1, o.name from rowlock_ticket o
                      where o.session = p.session and o.kind = 1
                        and (o.thread = p.thread or o.blocks is not null or o.base is not null) offset 0)) o)
select h.name, null::bigint, h.grant_id, h.session, h.thread, h.note, h.host, h.program, h.pid, 0, 0::bigint, 0::bigint,
       null::bigint, null::text
  from reach r
       cross join lateral (
           select l.name, l.grant_id, l.session, l.thread, l.note, s.host, s.program, s.pid
             from rowlock_lease l join rowlock_session s on s.id = l.session
            where r.kind = 0 and l.name = r.name and l.thread is not null and not {free} offset 0) h
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, w.host, w.program, w.pid, 0, 0,
       {micros(w.enqueued_at)}, null, w.blocks
  from reach r
       cross join lateral (
           select w.*, m.host, m.program, m.pid
             from rowlock_ticket w join rowlock_session m on m.id = w.session
            where r.kind = 0 and w.name = r.name and w.thread is not null and {waits_for_lease} offset 0) w
union all
select h.name, null, h.grant_id, h.session, h.thread, h.note, h.host, h.program, h.pid, 1, h.permits, 0, null, null
  from reach r
       cross join lateral (
           select s.name, s.grant_id, s.session, s.thread, s.note, s.permits, m.host, m.program, m.pid
             from rowlock_permit s join rowlock_session m on m.id = s.session
            where r.kind = 1 and s.name = r.name and s.thread is not null and not {hold_over} offset 0) h
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, w.host, w.program, w.pid, 1, w.weight,
       {micros(w.enqueued_at)}, w.base, w.blocks
  from reach r
       cross join lateral (
           select w.*, m.host, m.program, m.pid
             from rowlock_ticket w join rowlock_session m on m.id = w.session
            where r.kind = 1 and w.name = r.name and w.thread is not null and w.weight is not null and {waits} offset 0) w

-- statement wrong_counters
-- The counters that are not the sum of their holds, which should never be, for a person. One snapshot, reads only.
-- → how many counters; how many are wrong; the first of these
with wrong as materialized (
         select p.name from rowlock_semaphore p
          where p.used <> (select coalesce(sum(s.permits), 0)::bigint from rowlock_permit s where s.name = p.name))
select (select count(*) from rowlock_semaphore), (select count(*) from wrong),
       (select w.name from wrong w order by w.name limit 1)
