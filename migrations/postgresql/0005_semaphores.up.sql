-- Semaphores. They have tables of their own, so that nothing that works with leases meets them: a client of an
-- earlier version that runs through this migration reads and writes none of them.
--
-- One row for each semaphore; it stays, with its capacity.
--   name      as that of a lease. A semaphore and a lease of one name have nothing to do with each other
--   capacity  how many permits there are
--   used      the sum of `permits` of its rows in rowlock_permit, in every committed state
--   token     of the latest grant; only ever grows
create table rowlock_semaphore (
    name text collate "C" primary key,
    capacity bigint not null check (capacity >= 0),
    used bigint not null default 0 check (used >= 0),
    token bigint not null default 0
) with (fillfactor = 50, vacuum_truncate = off,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02);

-- One row for each hold of permits. It is deleted when the hold ends, in the transaction that lowers `used`.
--   name, grant_id  grant_id is random, made by the client: identifies one hold
--   session         the holder. The index is for the end of a session
--   permits         how many this hold has
--   token           of this grant
--   thread, note    of the holder, for people
--   acquired_at     for people
--   deadline        the hold ends then, heartbeats or not; null = never
create table rowlock_permit (
    name text collate "C" not null,
    grant_id bigint not null,
    session bigint not null,
    permits bigint not null check (permits > 0),
    token bigint not null,
    thread text,
    note text,
    acquired_at timestamptz not null,
    deadline timestamptz,
    primary key (name, grant_id)
) with (vacuum_truncate = off,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02);
create index on rowlock_permit (session);

-- One row for each entry in the queue of a semaphore; as rowlock_waiter.
--   permits  how many are waited for
create table rowlock_permit_waiter (
    name text collate "C" not null,
    ticket bigint not null generated always as identity,
    session bigint not null,
    grant_id bigint not null unique,
    permits bigint not null check (permits > 0),
    thread text,
    note text,
    deadline_us bigint,
    enqueued_at timestamptz not null,
    primary key (name, ticket)
) with (vacuum_truncate = off,
        -- A look for the lowest ticket steps over the index entries of those served before.
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
create index on rowlock_permit_waiter (session);
