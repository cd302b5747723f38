-- Sessions, leases, waiters, versions and the token floor. SQLite 3.35 or newer.
--
-- Times are microseconds since 1970, UTC, by the clock of this machine. The statement that decides
-- on one writes it, so none has a default.
--
-- Text is compared byte by byte, as SQLite does by itself. Tables found by text are WITHOUT ROWID:
-- one tree to search and to write, not a table and an index.

-- One row for each client. All its leases live and die with it.
--   id                  random, made by the client, above 0
--   owner               stable name of the process among its restarts, or random. Reclaim looks it
--                       up: a scan of some thousand rows, once per start of a process, needs no
--                       index
--   host, pid, program  for people
--   ttl_us              each heartbeat moves expires_at so far ahead, in microseconds
--   expires_at          past it anyone may end the session
--   ended               1 for ever, once the session has ended: it frees all its leases
--   beats               heartbeats so far: changes even if the clock stood still
--   revision            raised when a lease of this session was taken by force
--   server_identity     empty: a file is not promoted
--   opened_at           for people
create table rowlock_session (
    id integer primary key check (id > 0),
    owner text not null,
    host text not null,
    pid integer not null,
    program text not null,
    ttl_us integer not null check (ttl_us > 0),
    expires_at integer not null,
    ended integer not null default 0,
    beats integer not null default 0,
    revision integer not null default 0,
    server_identity text not null default '',
    opened_at integer not null
);

-- One row for each name that was ever locked and has not been reaped. A lease is free if its
-- session is null, missing or ended, or if its deadline has passed.
--   name          1 to 255 bytes of UTF-8, compared byte by byte
--   token         fencing token of the latest grant; only ever grows
--   session       the holder; null = released
--   grant_id      random, made by the client: identifies one grant
--   thread, note  of the holder, for people
--   acquired_at   when it was granted, for people
--   changed_at    latest grant or release; the reaper judges idleness by it
--   deadline      the grant ends then, heartbeats or not; null = never
create table rowlock_lease (
    name text primary key not null,
    token integer not null check (token >= 0),
    session integer,
    grant_id integer,
    thread text,
    note text,
    acquired_at integer,
    changed_at integer not null,
    deadline integer
) without rowid;

-- One row for each place in a queue. It lives as long as its session.
--   ticket       the lowest is served first; never used twice
--   name         of the lease that is waited for
--   session      who waits
--   grant_id     becomes the grant_id of the lease
--   mode         0 = exclusive, the only one so far
--   enqueued_at  for people
create table rowlock_waiter (
    ticket integer primary key autoincrement,
    name text not null,
    session integer not null,
    grant_id integer not null unique,
    mode integer not null default 0,
    enqueued_at integer not null
);
create index rowlock_waiter_name_ticket on rowlock_waiter (name, ticket);

-- Versions of resources, for optimistic updates of things that have no version column of their own.
--   resource                its name, compared byte by byte
--   version                 grows by one with each update
--   created_at, updated_at  for people
--   deleted_at              null = alive; a resource that is gone goes on counting its versions
create table rowlock_version (
    resource text primary key not null,
    version integer not null,
    created_at integer not null,
    updated_at integer not null,
    deleted_at integer
) without rowid;

-- Exactly one row. Tokens never repeat, even after the row of a lease was deleted.
--   id         always 1
--   floor      no token up to this one is ever granted again
--   settled    a floor raised so long ago that no statement from before can still run: free rows
--              with tokens up to it may be deleted
--   raised_at  when floor was raised
create table rowlock_token_floor (
    id integer primary key check (id = 1),
    floor integer not null default 0,
    settled integer not null default 0,
    raised_at integer not null,
    check (settled <= floor)
);
insert into rowlock_token_floor (id, floor, settled, raised_at)
    values (1, 0, 0, cast((julianday('now') - 2440587.5) * 86400000000 as integer));
