-- statement version_create
-- Creates a resource; changes no row if one exists, erased or not. Sent only after a plain read found none:
-- an INSERT that finds a duplicate leaves a shared lock on the row, and two transactions that both hold it
-- and then update deadlock. Of several concurrent inserts one succeeds; the others wait for its commit.
-- IGNORE and not ON DUPLICATE KEY UPDATE, whose row count means different things to different drivers.
-- IGNORE hides no other mistake: the name was checked and the rest are constants. The times are for people:
-- the statement's start, in any time zone.
-- $1 resource
insert ignore into rowlock_version (resource, version, created_at, updated_at)
values ($1, 1, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
        timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)))

-- statement version_erase
-- Marks a resource as deleted if its version is still the one seen. The row stays and its version keeps
-- counting.
-- Compare-and-set on the one row: InnoDB locks it by its primary key and reads the newest committed
-- version, even at REPEATABLE READ; the caller's snapshot does not matter. The version changes in every
-- matching row, so the row count is right with every driver. There is no RETURNING; the new version is the
-- one seen plus one. The times are for people: the statement's start, in any time zone, never moving back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = greatest(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), updated_at), deleted_at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
 where resource = $1 and version = $2 and deleted_at is null

-- statement version_list
-- One page of resources in name order, for people.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select resource, version, deleted_at is not null,
       timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - {micros(updated_at)}
  from rowlock_version
 where resource >= $1 and resource < $2 and resource > $3
 order by resource limit $4

-- statement version_restore
-- Removes version_erase's mark if the version is still the one seen.
-- Compare-and-set on the one row: InnoDB locks it by its primary key and reads the newest committed
-- version, even at REPEATABLE READ; the caller's snapshot does not matter. The version changes in every
-- matching row, so the row count is right with every driver. There is no RETURNING; the new version is the
-- one seen plus one. The times are for people: the statement's start, in any time zone, never moving back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = greatest(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), updated_at), deleted_at = null
 where resource = $1 and version = $2 and deleted_at is not null

-- statement version_update
-- Advances a resource's version if it is still the one seen and the resource is not erased.
-- Compare-and-set on the one row: InnoDB locks it by its primary key and reads the newest committed
-- version, even at REPEATABLE READ; the caller's snapshot does not matter. The version changes in every
-- matching row, so the row count is right with every driver. There is no RETURNING; the new version is the
-- one seen plus one. The times are for people: the statement's start, in any time zone, never moving back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = greatest(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), updated_at)
 where resource = $1 and version = $2 and deleted_at is null

-- statement utc_now
-- The server's clock in microseconds since 1970, in any session time zone. MySQL has no UPDATE … RETURNING,
-- so an update of a row whose version is a time reads the clock first and sends the version to write. The
-- reading is older than the write if the write waits for the row. That is harmless: the version moves from
-- the one seen to max(clock, seen + 1), and the write requires that the row still has the one seen.
select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
