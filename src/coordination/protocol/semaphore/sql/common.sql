-- statement set_capacity
-- Changes how many permits a semaphore has; less than `used` is allowed. Then check the queue.
-- $1 name  $2 capacity
update rowlock_semaphore set capacity = $2 where name = $1 and kind = 0

-- statement semaphore_state
-- How a semaphore stands; reads only.
-- $1 name  $2 my session
-- → capacity and used, NULL if there is none; whether my session lives, whether a live session waits for permits;
--   its kind
select p.capacity, p.used,
       (select count(*) from rowlock_session m where m.id = $2 and {live}),
       {permits_waited}, p.kind
  from (select 1 as one) as one left join rowlock_semaphore p on p.name = $1

-- statement find_permits
-- Finds a hold by its grant id: of a take whose reply was lost, or of an entry that may have been served.
-- $1 name  $2 my session  $3 grant id
-- → token, what is left of its own deadline in µs, or NULL; permits
select s.token, {until(s.deadline)}, s.permits
  from rowlock_permit s
 where s.name = $1 and s.grant_id = $3 and s.session = $2

-- statement find_several_permits
-- find_permits for several holds of one semaphore.
-- $1 name  $2 my session  $3 … $18 grant ids; may repeat
-- → grant id, token, permits
select s.grant_id, s.token, s.permits
  from rowlock_permit s
 where s.name = $1 and s.session = $2
   and s.grant_id in ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- statement permit_entries
-- All entries of a session in the queues of semaphores, in one snapshot; reads only.
-- $1 my session
-- → whether my session lives; name, grant id, ticket, position (0: it cannot be served), whether the first
--   waiter of the queue can be served, whether the counter is there, in how many queues the request of that first waiter
--   has an entry. One row with NULLs if there is no entry.
select (select count(*) from rowlock_session m where m.id = $1 and {live}),
       mine.name, mine.grant_id, mine.ticket, coalesce(q.place, 0),
       coalesce(q.first_permits <= p.capacity - p.used, 0), p.name is not null, coalesce(q.first_members, 1)
  from (select 1 as one) as one
       left join rowlock_ticket mine on mine.session = $1 and mine.weight is not null
       left join rowlock_semaphore p on p.name = mine.name
       left join (select w.ticket,
                         row_number() over (partition by w.name order by w.ticket) as place,
                         first_value(w.weight) over (partition by w.name order by w.ticket) as first_permits,
                         first_value(w.members) over (partition by w.name order by w.ticket) as first_members
                    from (select distinct o.name from rowlock_ticket o
                           where o.session = $1 and o.weight is not null) n
                         {join} rowlock_ticket w {join} rowlock_session m
                   where w.name = n.name and m.id = w.session and {waits_for_permits}) q
              on q.ticket = mine.ticket
 order by mine.ticket

-- statement permit_holders
-- Whether a semaphore has permits to be taken back, or when; reads only.
-- $1 name
-- → whether a session that holds permits has expired, but is not ended; whether there are holds that have ended;
--   until the next of the others ends without a heartbeat, in µs, NULL: none; permits that are free, NULL: no counter
select coalesce(max(m.ended = 0 and m.expires_at <= {now}), 0),
       coalesce(max({hold_over}), 0),
       {until(min(case when not {hold_over} and m.expires_at > {now}
                then coalesce({least}(m.expires_at, s.deadline), m.expires_at) end))},
       (select p.capacity - p.used from rowlock_semaphore p where p.name = $1)
  from rowlock_permit s left join rowlock_session m on m.id = s.session
 where s.name = $1

-- statement expired_holders
-- Some of the sessions that hold permits of a semaphore and have expired, but are not ended; reads only. Each is
-- ended by a conditional write of its own, before its permits may be taken back (I3).
-- $1 name
select distinct m.id
  from rowlock_permit s join rowlock_session m on m.id = s.session
 where s.name = $1 and m.ended = 0 and m.expires_at <= {now}
 limit 64

-- statement permits_of
-- The holds of a session, to compare a holder's belief with the table. By the index on session, reads only.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs, or NULL, whether it was ended by force, permits,
--   of an upgrade the grant id of its hold, whether another client has asked for its release; who did so within a time,
--   or NULL, and why
select s.name, s.grant_id, s.token, {until(s.deadline)}, coalesce(s.deadline = 0, 0), s.permits, s.base, s.requested,
       s.asked_by, s.reason
  from rowlock_permit s where s.session = $1
 order by s.name, s.token

-- statement semaphores_of_session
-- The semaphores that the end of a session concerns: it has permits of them, or an entry in their queue.
-- $1 session
select s.name from rowlock_permit s where s.session = $1
union
select w.name from rowlock_ticket w where w.session = $1 and w.weight is not null

-- statement semaphores_to_tend
-- A batch of semaphores for the reaper: those with holds that have ended, with a waiter that may be served, or
-- with a counter that is not the sum of its holds, which should never be. One snapshot, reads only.
-- $1 after which name  $2 batch
-- → name, used less the sum
select t.name, t.difference
  from (select p.name, p.used - (select coalesce(sum(s.permits), 0)
                                   from rowlock_permit s where s.name = p.name) as difference,
               p.used < p.capacity as has_free
          from rowlock_semaphore p where p.name > $1) t
 where t.difference <> 0
    or exists (select 1 from rowlock_permit s left join rowlock_session m on m.id = s.session
                where s.name = t.name and {hold_over})
    or t.has_free and exists (select 1 from rowlock_ticket w join rowlock_session m on m.id = w.session
                               where w.name = t.name and {waits_for_permits})
 order by t.name limit $2

-- statement correct_counter
-- Sets a counter to the sum of its holds. The transaction has locked it before (lock_semaphore), so what this reads
-- is younger than the lock.
-- $1 name
update rowlock_semaphore
   set used = (select coalesce(sum(s.permits), 0) from rowlock_permit s where s.name = $1)
 where name = $1
   and used <> (select coalesce(sum(s.permits), 0) from rowlock_permit s where s.name = $1)

-- statement idle_shared_mutexes
-- A batch of shared_mutexes, by name, that were not in use for the retention, and whether the settled token floor
-- covers their tokens. One snapshot, reads only.
-- $1 after which name  $2 batch  $3 retention in µs
-- → name, token, whether it may be deleted
select p.name, p.token, p.token <= f.settled
  from rowlock_semaphore p {join} rowlock_token_floor f
 where p.name > $1 and p.kind = 1 and p.used = 0 and p.changed_at <= {now} - $3 and f.id = 1
   and not exists (select 1 from rowlock_ticket w where w.name = p.name and w.weight is not null)
 order by p.name limit $2

-- statement delete_shared_mutex
-- Deletes an idle shared_mutex whose token the settled floor covers: made anew, it goes on above the floor, as a
-- lease does. A take that commits first has changed the token; one that comes later finds no row and makes it
-- anew, and so does the poll of a waiter.
-- $1 name  $2 token
delete from rowlock_semaphore where name = $1 and token = $2 and kind = 1 and used = 0

-- statement counter_exists
-- Whether there is a semaphore, or a shared_mutex, of this name. Reads only.
-- $1 name  $2 kind
select count(*) from rowlock_semaphore p where p.name = $1 and p.kind = $2

-- statement inspect_semaphore
-- A semaphore or a shared_mutex, for people. Reads only.
-- $1 name  $2 kind
-- → {semaphore_info}
select {semaphore_info} from rowlock_semaphore p where p.name = $1 and p.kind = $2

-- statement list_semaphores
-- A page of semaphores or shared_mutexes, for people, by name. Reads only.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many  $5 kind
-- → {semaphore_info}
select {semaphore_info} from rowlock_semaphore p
 where p.name >= $1 and p.name < $2 and p.name > $3 and p.kind = $5
 order by p.name limit $4

-- statement holders_of_permits
-- The holders of a semaphore's permits, for people, the oldest first. Reads only.
-- $1 name  $2 how many at most
-- → session, grant id, owner, host, program, thread, note, pid, µs held, what is left of it in µs, permits, token,
--   of an upgrade the grant id of its hold
select s.session, s.grant_id, m.owner, m.host, m.program, s.thread, s.note, m.pid,
       {since(s.acquired_at)},
       {until(coalesce({least}(m.expires_at, s.deadline), m.expires_at))},
       s.permits, s.token, s.base
  from rowlock_permit s join rowlock_session m on m.id = s.session
 where s.name = $1 and not {hold_over}
 order by s.token limit $2

-- statement hold_to_end
-- The hold that a token names, for an operator who ends it: that of an upgrade names the hold that it was added to.
-- Reads only.
-- $1 name  $2 token
-- → session, grant id
select s.session, coalesce(s.base, s.grant_id)
  from rowlock_permit s left join rowlock_session m on m.id = s.session
 where s.name = $1 and s.token = $2 and not {hold_over}

-- statement shorten_permit
-- Sets the deadline of a hold, and of what an upgrade added to it, to the time at which its session would expire
-- without another heartbeat, or to so long from now, whichever is later, unless that ends before, and marks it. Never
-- later than it was. The transaction has locked the hold, and then the session by bump_revision: as shorten_lease. An
-- upgrade that is committed later is not believed: its client reads the hold afterwards (recheck_permit).
-- $1 name  $2 grant id  $3 session  $4 how long from now, in µs  $5 who asks, or NULL: the holder gives it up at once
-- $6 why
update rowlock_permit
   set deadline = (select {least}(coalesce(deadline, {greatest}(m.expires_at, {now} + $4)), {greatest}(m.expires_at, {now} + $4))
                     from rowlock_session m where m.id = $3),
       requested = 1, asked_by = $5, reason = $6
 where name = $1 and (grant_id = $2 or base = $2) and session = $3

-- statement end_permit
-- Ends a hold from outside, with what an upgrade added to it: from the commit on every fence of it fails and every
-- judgement finds it over (hold_over), and any client may sweep it. A fence has the row locked: then this waits for that
-- transaction. The hold is locked before (lock_permit), and bump_revision follows. 0 says that it was ended by force.
-- An upgrade that is committed later is not believed: its client reads the hold afterwards (recheck_permit).
-- The note becomes who did it: a history records it.
-- $1 name  $2 grant id  $3 session  $4 by whom, or NULL
update rowlock_permit set deadline = 0, note = coalesce($4, note)
 where name = $1 and (grant_id = $2 or base = $2) and session = $3

-- statement extend_permit
-- Sets a hold's own deadline to so long from now, unless that has passed. The transaction has locked the hold
-- (lock_permit), and has then read that its client knows every change of its session's rows: a request for this
-- release locks the hold before it raises the revision, so one that came first has been seen, and one that comes later
-- shortens this deadline. Never earlier than it was, and always a change: the commit makes an earlier one, whose reply was
-- lost, durable.
-- $1 name  $2 grant id  $3 session  $4 how long from now, in µs
update rowlock_permit set deadline = {greatest}(deadline + 1, {now} + $4)
 where name = $1 and grant_id = $2 and session = $3 and deadline > {now} and requested = 0

-- statement raise_counter_token
-- Draws a token for a hold that is reclaimed. Locks the counter, behind the hold, as a release does.
-- $1 name
update rowlock_semaphore
   set token = {greatest}(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1, changed_at = {now}
 where name = $1

-- statement reclaim_permit
-- Moves a hold of a predecessor, ended in this transaction, to our session, with the token drawn before. The transaction
-- has locked the hold (lock_permit). Not one that is over, by its deadline or by force, nor one that another client has
-- asked for. Its thread is of another process.
-- $1 name  $2 grant id  $3 the predecessor's session  $4 my session
update rowlock_permit
   set session = $4, token = (select p.token from rowlock_semaphore p where p.name = $1), acquired_at = {now},
       thread = null
 where name = $1 and grant_id = $2 and session = $3
   and not coalesce(deadline <= {now}, 0) and requested = 0
   and (select 1 from rowlock_session m where m.id = $4 and {live}) = 1

-- statement any_permits
-- Whether shared_mutexes are held: else nobody waits for one, and the search for deadlocks knows leases alone. Reads only.
select exists (select 1 from rowlock_permit where kind = 1)

-- statement mode_deadlocks
-- As `deadlocks`, which see, with the shared_mutexes: the holders and waiters of the locks that our entries lead to, in
-- one snapshot; reads only. An entry with `blocks` is followed from every hold of its session: whose label is which
-- party the caller decides (party_labels.hpp).
-- $1 my session
-- → as deadlocks, with the grant ids of holders; then the kind of the lock (0: a lease, 1: a shared_mutex), permits, when
--   the entry was made, of an upgrade the grant id of its hold, labels of what else it blocks
with recursive reach (kind, name) as (
         select 0, w.name from rowlock_ticket w where w.session = $1 and w.weight is null and w.thread is not null
         union
         select 1, w.name from rowlock_ticket w
          where w.session = $1 and w.kind = 1 and w.thread is not null
         union
         select 0, o.name
           from reach r {join} rowlock_lease p {join} rowlock_ticket o
          where r.kind = 0 and p.name = r.name and o.session = p.session and o.weight is null
            and (o.thread = p.thread or o.blocks is not null)
         union
         select 1, o.name
           from reach r {join} rowlock_lease p {join} rowlock_ticket o
          where r.kind = 0 and p.name = r.name and o.session = p.session and o.kind = 1
            and (o.thread = p.thread or o.blocks is not null or o.base is not null)
         union
         select 0, o.name
           from reach r {join} rowlock_ticket p {join} rowlock_ticket o
          where r.kind = 0 and p.name = r.name and p.weight is null and o.session = p.session and o.weight is null
            and (o.thread = p.thread or o.blocks is not null)
         union
         select 1, o.name
           from reach r {join} rowlock_ticket p {join} rowlock_ticket o
          where r.kind = 0 and p.name = r.name and p.weight is null and o.session = p.session and o.kind = 1
            and (o.thread = p.thread or o.blocks is not null or o.base is not null)
         union
         select 0, o.name
           from reach r {join} rowlock_permit p {join} rowlock_ticket o
          where r.kind = 1 and p.name = r.name and o.session = p.session and o.weight is null
            and (o.thread = p.thread or o.blocks is not null)
         union
         select 1, o.name
           from reach r {join} rowlock_permit p {join} rowlock_ticket o
          where r.kind = 1 and p.name = r.name and o.session = p.session and o.kind = 1
            and (o.thread = p.thread or o.blocks is not null or o.base is not null)
         union
         select 0, o.name
           from reach r {join} rowlock_ticket p {join} rowlock_ticket o
          where r.kind = 1 and p.name = r.name and p.weight is not null and o.session = p.session and o.weight is null
            and (o.thread = p.thread or o.blocks is not null)
         union
         select 1, o.name
           from reach r {join} rowlock_ticket p {join} rowlock_ticket o
          where r.kind = 1 and p.name = r.name and p.weight is not null and o.session = p.session and o.kind = 1
            and (o.thread = p.thread or o.blocks is not null or o.base is not null))
select l.name, null, l.grant_id, l.session, l.thread, l.note, s.host, s.program, s.pid, 0, 0, 0, null, null
  from reach r {join} rowlock_lease l {join} rowlock_session s
 where r.kind = 0 and l.name = r.name and s.id = l.session and l.thread is not null and not {free}
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, m.host, m.program, m.pid, 0, 0, {micros(w.enqueued_at)}, null,
       w.blocks
  from reach r {join} rowlock_ticket w {join} rowlock_session m
 where r.kind = 0 and w.name = r.name and w.thread is not null and m.id = w.session and {waits_for_lease}
union all
select s.name, null, s.grant_id, s.session, s.thread, s.note, m.host, m.program, m.pid, 1, s.permits, 0, null, null
  from reach r {join} rowlock_permit s {join} rowlock_session m
 where r.kind = 1 and s.name = r.name and s.thread is not null and m.id = s.session and not {hold_over}
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, m.host, m.program, m.pid, 1, w.weight, {micros(w.enqueued_at)},
       w.base, w.blocks
  from reach r {join} rowlock_ticket w {join} rowlock_session m
 where r.kind = 1 and w.name = r.name and w.thread is not null and m.id = w.session and w.weight is not null and {waits}

-- statement wrong_counters
-- The counters that are not the sum of their holds, which should never be, for a person. One snapshot, reads only.
-- → how many counters; how many are wrong; the first of these
with wrong as (
         select p.name from rowlock_semaphore p
          where p.used <> (select coalesce(sum(s.permits), 0) from rowlock_permit s where s.name = p.name))
select (select count(*) from rowlock_semaphore), (select count(*) from wrong),
       (select w.name from wrong w order by w.name limit 1)
