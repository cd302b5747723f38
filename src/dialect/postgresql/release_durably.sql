-- `release` with a commit that waits for the disk, for connections behind a transaction pooler: a
-- crash of the server breaks no connection of the client's there, so nothing would make it look.
-- $1 name  $2 my session  $3 grant id
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint
