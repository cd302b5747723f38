-- Takes the mark of version_erase away, if the version is still the one seen.
-- Compare-and-set on the one row: after a wait for another transaction READ COMMITTED looks at the
-- row's new version and the predicate fails; REPEATABLE READ and SERIALIZABLE answer 40001. The
-- clock of a statement that waited is stale, so updated_at, which is for people, never steps back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = greatest(clock_timestamp(), updated_at), deleted_at = null
 where resource = $1 and version = $2 and deleted_at is not null
returning version
