-- statement version_create
-- Makes a resource; no row changed if it is there already, erased or not. Sent only after a plain
-- read found none: a duplicate found by INSERT leaves a shared lock on the row, and two
-- transactions that both have one and then update deadlock. Of several at once, one inserts; the
-- others wait for its commit. IGNORE and not ON DUPLICATE KEY UPDATE: the count of the latter means
-- different things to different drivers. It hides no other mistake, as the name was checked and the
-- rest are constants. The times are for people: when the statement began, whatever the time zone.
-- $1 resource
insert ignore into rowlock_version (resource, version, created_at, updated_at)
values ($1, 1, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
        timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)))

-- statement version_erase
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

-- statement version_list
-- A page of resources for people, by name.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select resource, version, deleted_at is not null,
       timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - updated_at
  from rowlock_version
 where resource >= $1 and resource < $2 and resource > $3
 order by resource limit $4

-- statement version_restore
-- Takes the mark of version_erase away, if the version is still the one seen.
-- Compare-and-set on the one row: InnoDB locks it by its primary key and reads the newest committed
-- version, at REPEATABLE READ, too; the caller's snapshot has no say. The version changes in every
-- row that matches, so the count is right through every driver; there is no RETURNING, and the new
-- version is the one seen plus one. Times are for people: the statement's start, whatever the time
-- zone, never stepping back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = greatest(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), updated_at), deleted_at = null
 where resource = $1 and version = $2 and deleted_at is not null

-- statement version_update
-- Moves a resource's version on, if it is still the one seen and not erased.
-- Compare-and-set on the one row: InnoDB locks it by its primary key and reads the newest committed
-- version, at REPEATABLE READ, too; the caller's snapshot has no say. The version changes in every
-- row that matches, so the count is right through every driver; there is no RETURNING, and the new
-- version is the one seen plus one. Times are for people: the statement's start, whatever the time
-- zone, never stepping back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = greatest(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), updated_at)
 where resource = $1 and version = $2 and deleted_at is null

-- statement utc_now
-- The server's clock in microseconds since 1970, whatever the session's time zone. There is no
-- UPDATE … RETURNING here, so an update of a row whose version is a time reads the clock first and
-- sends what it will write. That the reading is older than the write, if that waits for the row, does
-- no harm: the version moves from the one seen to max(clock, seen + 1), and the write's predicate is
-- that the row still has the one seen.
select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
