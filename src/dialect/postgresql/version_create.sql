-- Makes a resource; no row if it is there already, erased or not. Of several at once, one inserts;
-- the others wait for its commit and then do nothing, or insert if it rolled back. No error, so the
-- caller's transaction goes on. At REPEATABLE READ a row younger than the snapshot is a 40001.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 1, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp())
on conflict (resource) do nothing
returning version
