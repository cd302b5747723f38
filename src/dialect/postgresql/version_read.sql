-- A resource's version and whether it is erased. A plain snapshot read: the conditional update that
-- follows decides.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 resource
select version, (deleted_at is not null)::int from rowlock_version where resource operator(pg_catalog.=) $1
