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
select s.token, s.deadline - {now}, s.permits
  from rowlock_permit s
 where s.name = $1 and s.grant_id = $3 and s.session = $2

-- statement permit_entries
-- All entries of a session in the queues of semaphores, in one snapshot; reads only.
-- $1 my session
-- → whether my session lives; name, grant id, ticket, position (0: my session is dead), whether the first
--   waiter of the queue can be served, whether the counter is there. One row with NULLs if there is no entry.
select (select count(*) from rowlock_session m where m.id = $1 and {live}),
       mine.name, mine.grant_id, mine.ticket, coalesce(q.place, 0),
       coalesce(q.first_permits <= p.capacity - p.used, 0), p.name is not null
  from (select 1 as one) as one
       left join rowlock_permit_waiter mine on mine.session = $1
       left join rowlock_semaphore p on p.name = mine.name
       left join (select w.ticket,
                         row_number() over (partition by w.name order by w.ticket) as place,
                         first_value(w.permits) over (partition by w.name order by w.ticket) as first_permits
                    from (select distinct o.name from rowlock_permit_waiter o where o.session = $1) n
                         {join} rowlock_permit_waiter w {join} rowlock_session m
                   where w.name = n.name and m.id = w.session and {live}) q
              on q.ticket = mine.ticket
 order by mine.ticket

-- statement permit_holders
-- Whether a semaphore has permits to be taken back, or when; reads only.
-- $1 name
-- → whether a session that holds permits has expired, but is not ended; whether there are holds that have ended;
--   until the next of the others ends without a heartbeat, in µs. NULL: none.
select coalesce(max(m.ended = 0 and m.expires_at <= {now}), 0),
       coalesce(max({hold_over}), 0),
       min(case when not {hold_over} and m.expires_at > {now}
                then coalesce({least}(m.expires_at, s.deadline), m.expires_at) end) - {now}
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
-- → name, grant id, token, what is left of its own deadline in µs, or NULL, whether it was ended by force
select s.name, s.grant_id, s.token, s.deadline - {now}, coalesce(s.deadline = 0, 0)
  from rowlock_permit s where s.session = $1

-- statement semaphores_of_session
-- The semaphores that the end of a session concerns: it has permits of them, or an entry in their queue.
-- $1 session
select s.name from rowlock_permit s where s.session = $1
union
select w.name from rowlock_permit_waiter w where w.session = $1

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
    or t.has_free and exists (select 1 from rowlock_permit_waiter w join rowlock_session m on m.id = w.session
                               where w.name = t.name and {live})
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
   and not exists (select 1 from rowlock_permit_waiter w where w.name = p.name)
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
-- → session, grant id, owner, host, program, thread, note, pid, µs held, what is left of it in µs, permits, token
select s.session, s.grant_id, m.owner, m.host, m.program, s.thread, s.note, m.pid,
       {now} - s.acquired_at,
       coalesce({least}(m.expires_at, s.deadline), m.expires_at) - {now},
       s.permits, s.token
  from rowlock_permit s join rowlock_session m on m.id = s.session
 where s.name = $1 and not {hold_over}
 order by s.token limit $2

-- statement permit_queue
-- The live waiters for permits, for people, in the order in which they will be served. Reads only.
-- $1 name
-- → ticket, session, owner, host, program, thread, note, pid, µs waited, permits
select w.ticket, w.session, m.owner, m.host, m.program, w.thread, w.note, m.pid,
       {now} - w.enqueued_at, w.permits
  from rowlock_permit_waiter w {join} rowlock_session m
 where w.name = $1 and m.id = w.session and {live}
 order by w.ticket

-- statement holds_to_end
-- The holds that a token names, for an operator who ends them: the hold of that grant, and in a shared_mutex also what
-- an upgrade has added to it, or what it was added to. Reads only.
-- $1 name  $2 token  $3 the permits of an upgrade from shared
-- → session, grant id
select s.session, s.grant_id
  from rowlock_permit s left join rowlock_session m on m.id = s.session
 where s.name = $1 and not {hold_over}
   and (s.token = $2
        or exists (select 1 from rowlock_permit t {join} rowlock_semaphore p
                    where t.name = $1 and t.token = $2 and t.session = s.session
                      and p.name = $1 and p.kind = 1
                      and t.permits > 1 and (s.permits > 1 or t.permits = $3)))
 order by s.grant_id

-- statement shorten_permit
-- Sets a hold's deadline to the time at which its session would expire without another heartbeat, unless the hold
-- ends before that. Never later. The transaction has locked the hold, and then the session by bump_revision: as
-- shorten_lease.
-- $1 name  $2 grant id  $3 session
update rowlock_permit
   set deadline = (select m.expires_at from rowlock_session m where m.id = $3)
 where name = $1 and grant_id = $2 and session = $3
   and exists (select 1 from rowlock_session m
                where m.id = $3 and (deadline is null or deadline > m.expires_at))

-- statement end_permit
-- Ends a hold from outside: from the commit on every fence of it fails and every judgement finds it over (hold_over),
-- and any client may sweep it. A fence has the row locked: then this waits for that transaction. bump_revision
-- follows. 0 says that the hold was ended by force.
-- $1 name  $2 grant id  $3 session
update rowlock_permit set deadline = 0 where name = $1 and grant_id = $2 and session = $3
