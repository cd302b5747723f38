-- Makes the row that stands for a resource, if it is missing. This transaction has the file's write
-- lock already: nobody else can insert it. Version 0: never written.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 0, {now}, {now})
    on conflict (resource) do nothing
