-- Frees a lease if it is still this very grant: a release repeated after a lost reply cannot free a
-- newer one. The commit is asynchronous: if the server crashes before it is on disk the lease is
-- merely held again, and the client, whose connection broke, releases after its reconnect whatever
-- names its session and is not held. Behind a pooler a crash breaks no connection of the client's:
-- there the commit stays synchronous.
-- $1 name  $2 my session  $3 grant id
with c as materialized (
         select set_config('synchronous_commit', 'off', true))
update rowlock_lease l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
  from c
 where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
