-- statement version_create
-- Creates a resource; returns no row if one exists, erased or not. SQLite's single writer decides.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 1, {now}, {now})
on conflict (resource) do nothing
returning version

-- statement version_erase
-- Marks a resource as deleted if its version is still the one seen. The row stays and its version keeps
-- counting.
-- Compare-and-set; the statement is the file's only writer. In a transaction that read before another
-- connection wrote, SQLite refuses it (BUSY_SNAPSHOT). updated_at never moves back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = max({now}, updated_at), deleted_at = {now}
 where resource = $1 and version = $2 and deleted_at is null
returning version

-- statement version_list
-- One page of resources in name order, for people.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select resource, version, deleted_at is not null, {since(updated_at)}
  from rowlock_version
 where resource >= $1 and resource < $2 and resource > $3
 order by resource limit $4

-- statement version_restore
-- Removes version_erase's mark if the version is still the one seen.
-- Compare-and-set; the statement is the file's only writer. In a transaction that read before another
-- connection wrote, SQLite refuses it (BUSY_SNAPSHOT). updated_at never moves back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = max({now}, updated_at), deleted_at = null
 where resource = $1 and version = $2 and deleted_at is not null
returning version

-- statement version_update
-- Advances a resource's version if it is still the one seen and the resource is not erased.
-- Compare-and-set; the statement is the file's only writer. In a transaction that read before another
-- connection wrote, SQLite refuses it (BUSY_SNAPSHOT). updated_at never moves back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = max({now}, updated_at)
 where resource = $1 and version = $2 and deleted_at is null
returning version
