-- Back to the table of 0001_initial.up.sql. Places in queues live for seconds and are lost.
drop table rowlock_waiter;
create table rowlock_waiter (
    ticket bigint generated always as identity primary key,
    name text collate "C" not null,
    session bigint not null,
    grant_id bigint not null unique,
    mode smallint not null default 0,
    enqueued_at timestamptz not null
) with (vacuum_truncate = off,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
create index on rowlock_waiter (name, ticket);
