-- Semaphores. They have tables of their own, so that nothing that works with leases meets them: a client of an
-- earlier version that runs through this migration reads and writes none of them.
--
-- One row for each semaphore; it stays, with its capacity.
--   name      as that of a lease. A semaphore and a lease of one name have nothing to do with each other
--   capacity  how many permits there are
--   used      the sum of `permits` of its rows in rowlock_permit, in every committed state
--   token     of the latest grant; only ever grows
create table rowlock_semaphore (
    name text primary key not null,
    capacity integer not null check (capacity >= 0),
    used integer not null default 0 check (used >= 0),
    token integer not null default 0
) without rowid;

-- One row for each hold of permits. It is deleted when the hold ends, in the transaction that lowers `used`.
--   name, grant_id  grant_id is random, made by the client: identifies one hold
--   session         the holder. The index is for the end of a session
--   permits         how many this hold has
--   token           of this grant
--   thread, note    of the holder, for people
--   acquired_at     for people
--   deadline        the hold ends then, heartbeats or not; null = never
create table rowlock_permit (
    name text not null,
    grant_id integer not null,
    session integer not null,
    permits integer not null check (permits > 0),
    token integer not null,
    thread text,
    note text,
    acquired_at integer not null,
    deadline integer,
    primary key (name, grant_id)
) without rowid;
create index rowlock_permit_session on rowlock_permit (session);

-- One row for each entry in the queue of a semaphore; as rowlock_waiter.
--   permits  how many are waited for
create table rowlock_permit_waiter (
    ticket integer primary key autoincrement,
    name text not null,
    session integer not null,
    grant_id integer not null unique,
    permits integer not null check (permits > 0),
    enqueued_at integer not null,
    thread text,
    note text,
    deadline_us integer
);
create index rowlock_permit_waiter_name_ticket on rowlock_permit_waiter (name, ticket);
create index rowlock_permit_waiter_session on rowlock_permit_waiter (session);
