-- Sessions, leases, waiters, versions and the token floor. MySQL 8 and MariaDB 10.5 or newer.
--
-- Tables are not made in a transaction here, so every statement can be repeated: a migration that
-- was cut off is completed by running it again.
--
-- Times are microseconds since 1970, UTC, by the clock of this server, which no time zone and no
-- daylight saving can bend. The statement that decides on one writes it, so none has a default.
--
-- What is compared is VARBINARY: byte by byte, no collation, trailing spaces count. Other text is
-- utf8mb4. No column that changes has an index: InnoDB would lock its entries too, and deadlock.

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
--   server_identity     the server that the session last wrote to: differs after a promotion
--   opened_at           for people
create table if not exists rowlock_session (
    id bigint not null primary key,
    owner varbinary(255) not null,
    host varchar(255) not null,
    pid bigint not null,
    program varchar(255) not null,
    ttl_us bigint not null,
    expires_at bigint not null,
    ended tinyint not null default 0,
    beats bigint not null default 0,
    revision bigint not null default 0,
    server_identity varchar(255) not null default '',
    opened_at bigint not null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

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
create table if not exists rowlock_lease (
    name varbinary(255) not null primary key,
    token bigint not null,
    session bigint null,
    grant_id bigint null,
    thread varchar(255) null,
    note varchar(1000) null,
    acquired_at bigint null,
    changed_at bigint not null,
    deadline bigint null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row for each place in a queue. It lives as long as its session.
--   ticket       the lowest is served first. Galera nodes hand out interleaved tickets: there the
--                order is nearly that of arrival
--   name         of the lease that is waited for
--   session      who waits
--   grant_id     becomes the grant_id of the lease. Delete rows by ticket: deleting by this key
--                deadlocks with inserts
--   mode         0 = exclusive, the only one so far
--   enqueued_at  for people
create table if not exists rowlock_waiter (
    ticket bigint not null auto_increment primary key,
    name varbinary(255) not null,
    session bigint not null,
    grant_id bigint not null,
    mode smallint not null default 0,
    enqueued_at bigint not null,
    unique key rowlock_waiter_grant_id (grant_id),
    key rowlock_waiter_name_ticket (name, ticket)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Versions of resources, for optimistic updates of things that have no version column of their own.
--   resource                its name, compared byte by byte
--   version                 grows by one with each update
--   created_at, updated_at  for people
--   deleted_at              null = alive; a resource that is gone goes on counting its versions
create table if not exists rowlock_version (
    resource varbinary(255) not null primary key,
    version bigint not null,
    created_at bigint not null,
    updated_at bigint not null,
    deleted_at bigint null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Exactly one row. Tokens never repeat, even after the row of a lease was deleted.
--   id         always 1
--   floor      no token up to this one is ever granted again
--   settled    a floor raised so long ago that no statement from before can still run: free rows
--              with tokens up to it may be deleted
--   raised_at  when floor was raised
create table if not exists rowlock_token_floor (
    id smallint not null primary key check (id = 1),
    floor bigint not null default 0,
    settled bigint not null default 0,
    raised_at bigint not null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
insert into rowlock_token_floor (id, floor, settled, raised_at)
    values (1, 0, 0, timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6)))
    on duplicate key update id = 1;
