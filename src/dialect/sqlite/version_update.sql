-- Moves a resource's version on, if it is still the one seen and not erased.
-- Compare-and-set; the statement has the file to itself. In a transaction that has read before
-- another connection wrote, SQLite refuses (BUSY_SNAPSHOT). updated_at never steps back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = max({now}, updated_at)
 where resource = $1 and version = $2 and deleted_at is null
returning version
