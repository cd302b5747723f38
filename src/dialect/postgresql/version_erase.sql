-- Marks a resource as deleted, if its version is still the one seen. The row stays and goes on counting.
-- Compare-and-set on the one row: after a wait for another transaction READ COMMITTED looks at the
-- row's new version and the predicate fails; REPEATABLE READ and SERIALIZABLE answer 40001. The
-- clock of a statement that waited is stale, so updated_at, which is for people, never steps back.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version operator(pg_catalog.+) 1,
       updated_at = greatest(pg_catalog.clock_timestamp(), updated_at),
       deleted_at = pg_catalog.clock_timestamp()
 where resource operator(pg_catalog.=) $1 and version operator(pg_catalog.=) $2 and deleted_at is null
returning version
