-- Makes a resource; no row if it is there already, erased or not. The one writer decides.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 1, {now}, {now})
on conflict (resource) do nothing
returning version
