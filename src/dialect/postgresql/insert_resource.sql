-- Makes the row that stands for a resource, if it is missing. Another transaction that is making it
-- is waited for, up to the lock timeout: set here, and read when the wait begins, which is after the
-- SELECT has yielded its row. If that one commits, nothing is inserted and the row is there to be
-- locked; if it rolls back, ours is in, and locked by being uncommitted. Version 0: never written.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 resource  $2 lock timeout in ms
with waiting as materialized (select pg_catalog.set_config('lock_timeout', $2::pg_catalog.text, true))
insert into rowlock_version (resource, version, created_at, updated_at)
select $1::pg_catalog.text, 0, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() from waiting
    on conflict (resource) do nothing
