-- statement version_read
-- A resource's version and whether it is erased. A plain snapshot read: the conditional update that
-- follows decides.
-- $1 resource
select version, deleted_at is not null from rowlock_version where resource = $1
