-- Takes the mark of version_erase away, if the version is still the one seen.
-- Compare-and-set; the statement has the file to itself. In a transaction that has read before
-- another connection wrote, SQLite refuses (BUSY_SNAPSHOT). updated_at never steps back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = max({now}, updated_at), deleted_at = null
 where resource = $1 and version = $2 and deleted_at is not null
returning version
