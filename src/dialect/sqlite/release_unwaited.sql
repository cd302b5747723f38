-- Frees a lease if it is still this very grant and nobody live waits for it. One writer: whoever
-- enqueues afterwards finds it free. No row changed: not this grant, or somebody waits.
-- $1 name  $2 my session  $3 grant id
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3
   and not exists (select 1 from rowlock_waiter w cross join rowlock_session m
                    where w.name = $1 and m.id = w.session and {live})
