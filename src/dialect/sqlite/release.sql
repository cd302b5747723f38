-- Frees a lease if it is still this very grant: a release repeated after a lost reply cannot free a
-- newer one.
-- $1 name  $2 my session  $3 grant id
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3
