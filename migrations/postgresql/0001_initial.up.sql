-- Sessions, leases, waiters, versions and the token floor. PostgreSQL 12 or newer.
--
-- Times are the clock of this server, written by the statement that decides on them: no column has
-- a default of now(), which is the start of the transaction.
--
-- The hot tables share three settings.
--   fillfactor 50        leaves room in each page, so that an update stays in its page, touches no
--                        index (HOT) and is cleared away by the next reader, not by vacuum. For
--                        the same reason no column that changes has an index.
--   vacuum_truncate off  Vacuum would give empty pages at the end of the file back under an
--                        exclusive lock, which stalls every acquire here and every reader on a
--                        standby. The next burst needs those pages again.
--   autovacuum_vacuum_*  By default vacuum waits for dead rows worth a fifth of the table. Most
--                        leases lie idle, so a few busy ones could grow for long.

-- One row for each client. All its leases live and die with it.
--   id                  random, made by the client, above 0
--   owner               stable name of the process among its restarts, or random. Reclaim looks it
--                       up: a scan of some thousand rows, once per start of a process, needs no
--                       index
--   host, pid, program  for people
--   ttl_us              each heartbeat moves expires_at so far ahead, in microseconds
--   expires_at          past it anyone may end the session
--   ended               true for ever, once the session has ended: it frees all its leases
--   beats               heartbeats so far: changes even if the clock stood still
--   revision            raised when a lease of this session was taken by force
--   server_identity     the server that the session last wrote to: differs after a promotion
--   opened_at           for people
create table rowlock_session (
    id bigint primary key check (id > 0),
    owner text not null,
    host text not null,
    pid bigint not null,
    program text not null,
    ttl_us bigint not null check (ttl_us > 0),
    expires_at timestamptz not null,
    ended boolean not null default false,
    beats bigint not null default 0,
    revision bigint not null default 0,
    server_identity text not null default '',
    opened_at timestamptz not null
) with (fillfactor = 50, vacuum_truncate = off,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02);

-- One row for each name that was ever locked and has not been reaped. A lease is free if its
-- session is null, missing or ended, or if its deadline has passed.
--   name          1 to 255 bytes of UTF-8, compared byte by byte
--   token         fencing token of the latest grant; only ever grows
--   session       the holder; null = released. No index and no foreign key: it changes with every
--                 grant
--   grant_id      random, made by the client: identifies one grant
--   thread, note  of the holder, for people
--   acquired_at   when it was granted, for people
--   changed_at    latest grant or release; the reaper judges idleness by it
--   deadline      the grant ends then, heartbeats or not; null = never
create table rowlock_lease (
    name text collate "C" primary key,
    token bigint not null check (token >= 0),
    session bigint,
    grant_id bigint,
    thread text,
    note text,
    acquired_at timestamptz,
    changed_at timestamptz not null,
    deadline timestamptz
) with (fillfactor = 50, vacuum_truncate = off,
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0.02);

-- One row for each place in a queue. It lives as long as its session.
--   ticket       the lowest is served first
--   name         of the lease that is waited for
--   session      who waits
--   grant_id     becomes the grant_id of the lease
--   mode         0 = exclusive, the only one so far
--   enqueued_at  for people
create table rowlock_waiter (
    ticket bigint generated always as identity primary key,
    name text collate "C" not null,
    session bigint not null,
    grant_id bigint not null unique,
    mode smallint not null default 0,
    enqueued_at timestamptz not null
) with (vacuum_truncate = off,
        -- A look for the lowest ticket steps over the index entries of those served before.
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
create index on rowlock_waiter (name, ticket);

-- Versions of resources, for optimistic updates of things that have no version column of their own.
--   resource                its name, compared byte by byte
--   version                 grows by one with each update
--   created_at, updated_at  for people
--   deleted_at              null = alive; a resource that is gone goes on counting its versions
create table rowlock_version (
    resource text collate "C" primary key,
    version bigint not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    deleted_at timestamptz
) with (fillfactor = 70);  -- updated in place like a lease, but there may be many

-- Exactly one row. Tokens never repeat, even after the row of a lease was deleted.
--   id         always 1
--   floor      no token up to this one is ever granted again
--   settled    a floor raised so long ago that no statement from before can still run: free rows
--              with tokens up to it may be deleted
--   raised_at  when floor was raised
create table rowlock_token_floor (
    id smallint primary key check (id = 1),
    floor bigint not null default 0,
    settled bigint not null default 0,
    raised_at timestamptz not null,
    check (settled <= floor)
) with (fillfactor = 50);
insert into rowlock_token_floor (id, floor, settled, raised_at) values (1, 0, 0, clock_timestamp());
