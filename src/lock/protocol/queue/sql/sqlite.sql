-- statement cancel
-- Cancels queue entries.
-- $1 … $16 grant ids; may repeat
-- → the grant ids whose tickets this call deleted
delete from rowlock_ticket
 where grant_id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
returning grant_id

-- statement delete_entries_of
-- Deletes the queue entries of a session that has ended or is gone.
-- $1 session
delete from rowlock_ticket
 where session = $1
   and not exists (select 1 from rowlock_session m where m.id = $1 and m.ended = 0)

-- statement release_unwaited
-- Frees a lease if it is still this very grant and has no waiter that can be served. One writer: a client that enqueues
-- afterwards finds it free. No row changed: not this grant, or there is a waiter.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3
   and not exists (select 1 from rowlock_ticket w cross join rowlock_session m
                    where w.name = $1 and m.id = w.session and {waits})
