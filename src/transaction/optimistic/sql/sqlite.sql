-- statement version_create
-- Makes a resource; no row if it is there already, erased or not. The one writer decides.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 1, {now}, {now})
on conflict (resource) do nothing
returning version

-- statement version_erase
-- Marks a resource as deleted, if its version is still the one seen. The row stays and goes on counting.
-- Compare-and-set; the statement has the file to itself. In a transaction that has read before
-- another connection wrote, SQLite refuses (BUSY_SNAPSHOT). updated_at never steps back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = max({now}, updated_at), deleted_at = {now}
 where resource = $1 and version = $2 and deleted_at is null
returning version

-- statement version_list
-- A page of resources for people, by name.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select resource, version, deleted_at is not null, {now} - updated_at
  from rowlock_version
 where resource >= $1 and resource < $2 and resource > $3
 order by resource limit $4

-- statement version_restore
-- Takes the mark of version_erase away, if the version is still the one seen.
-- Compare-and-set; the statement has the file to itself. In a transaction that has read before
-- another connection wrote, SQLite refuses (BUSY_SNAPSHOT). updated_at never steps back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = max({now}, updated_at), deleted_at = null
 where resource = $1 and version = $2 and deleted_at is not null
returning version

-- statement version_update
-- Moves a resource's version on, if it is still the one seen and not erased.
-- Compare-and-set; the statement has the file to itself. In a transaction that has read before
-- another connection wrote, SQLite refuses (BUSY_SNAPSHOT). updated_at never steps back.
-- $1 resource  $2 the version seen
update rowlock_version
   set version = version + 1, updated_at = max({now}, updated_at)
 where resource = $1 and version = $2 and deleted_at is null
returning version
