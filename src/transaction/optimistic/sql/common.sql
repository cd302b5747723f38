-- statement version_read
-- A resource's version and whether it is erased. A plain snapshot read: the conditional update that
-- follows decides.
-- $1 resource
select version, (deleted_at is not null)::int from rowlock_version where resource operator(pg_catalog.=) $1

-- statement version_create
-- Creates a resource; returns no row if one exists, erased or not. Of several concurrent inserts one
-- succeeds; the others wait for its commit and then do nothing, or insert if it rolled back. There is no
-- error, so the caller's transaction continues. At REPEATABLE READ a row newer than the snapshot raises
-- 40001.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 1, {now}, {now})
on conflict (resource) do nothing
returning version

-- statement version_erase
-- Marks a resource as deleted if its version is still the one seen. The row stays and its version keeps
-- counting.
-- Compare-and-set on the one row: after a wait for another transaction, READ COMMITTED re-checks the row's
-- new version and the predicate fails; REPEATABLE READ and SERIALIZABLE raise 40001. A statement that
-- waited has a stale clock, so greatest() keeps updated_at, which is for people, from moving back.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version operator(pg_catalog.+) 1, updated_at = {greatest}({now}, updated_at), deleted_at = {now}
 where resource operator(pg_catalog.=) $1 and version operator(pg_catalog.=) $2 and deleted_at is null
returning version

-- statement version_restore
-- Removes version_erase's mark if the version is still the one seen.
-- Compare-and-set on the one row: after a wait for another transaction, READ COMMITTED re-checks the row's
-- new version and the predicate fails; REPEATABLE READ and SERIALIZABLE raise 40001. A statement that
-- waited has a stale clock, so greatest() keeps updated_at, which is for people, from moving back.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version operator(pg_catalog.+) 1, updated_at = {greatest}({now}, updated_at), deleted_at = null
 where resource operator(pg_catalog.=) $1 and version operator(pg_catalog.=) $2 and deleted_at is not null
returning version

-- statement version_update
-- Advances a resource's version if it is still the one seen and the resource is not erased.
-- Compare-and-set on the one row: after a wait for another transaction, READ COMMITTED re-checks the row's
-- new version and the predicate fails; REPEATABLE READ and SERIALIZABLE raise 40001. A statement that
-- waited has a stale clock, so greatest() keeps updated_at, which is for people, from moving back.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version operator(pg_catalog.+) 1, updated_at = {greatest}({now}, updated_at)
 where resource operator(pg_catalog.=) $1 and version operator(pg_catalog.=) $2 and deleted_at is null
returning version

-- statement version_list
-- One page of resources in name order, for people.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select resource, version, (deleted_at is not null)::int, {since(updated_at)}
  from rowlock_version
 where resource operator(pg_catalog.>=) $1::pg_catalog.text
   and resource operator(pg_catalog.<) $2::pg_catalog.text
   and resource operator(pg_catalog.>) $3::pg_catalog.text
 order by resource limit $4::bigint
