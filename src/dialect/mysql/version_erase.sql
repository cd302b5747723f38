-- Marks a resource as deleted, if its version is still the one seen. The row stays and goes on counting.
-- Compare-and-set on the one row: InnoDB locks it by its primary key and reads the newest committed
-- version, at REPEATABLE READ, too; the caller's snapshot has no say. The version changes in every
-- row that matches, so the count is right through every driver; there is no RETURNING, and the new
-- version is the one seen plus one. Times are for people: the statement's start, whatever the time
-- zone, never stepping back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = greatest(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), updated_at), deleted_at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
 where resource = $1 and version = $2 and deleted_at is null
