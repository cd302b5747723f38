-- Makes the row that stands for a resource, if it is missing. ON DUPLICATE KEY takes the exclusive
-- lock of a row that is there at once: INSERT IGNORE would take a shared one, and two sessions that
-- both have it would deadlock over the exclusive one. Who waits is ended by the statement's own time
-- limit, which is put in front. Version 0: never written.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 0, {now}, {now})
    on duplicate key update resource = values(resource)
