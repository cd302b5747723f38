-- Semaphores. They have tables of their own, so that nothing that works with leases meets them: a client of an
-- earlier version that runs through this migration reads and writes none of them.
--
-- One row for each semaphore; it stays, with its capacity.
--   name      as that of a lease. A semaphore and a lease of one name have nothing to do with each other
--   capacity  how many permits there are
--   used      the sum of `permits` of its rows in rowlock_permit, in every committed state
--   token     of the latest grant; only ever grows
create table if not exists rowlock_semaphore (
    name varbinary(255) not null primary key,
    capacity bigint not null,
    used bigint not null default 0,
    token bigint not null default 0
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row for each hold of permits. It is deleted when the hold ends, in the transaction that lowers `used`.
--   name, grant_id  grant_id is random, made by the client: identifies one hold
--   session         the holder. The index is for the end of a session
--   permits         how many this hold has
--   token           of this grant
--   thread, note    of the holder, for people
--   acquired_at     for people
--   deadline        the hold ends then, heartbeats or not; null = never
create table if not exists rowlock_permit (
    name varbinary(255) not null,
    grant_id bigint not null,
    session bigint not null,
    permits bigint not null,
    token bigint not null,
    thread varchar(255) null,
    note varchar(1000) null,
    acquired_at bigint not null,
    deadline bigint null,
    primary key (name, grant_id),
    key rowlock_permit_session (session)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row for each entry in the queue of a semaphore; as rowlock_waiter.
--   permits  how many are waited for
create table if not exists rowlock_permit_waiter (
    ticket bigint not null auto_increment primary key,
    name varbinary(255) not null,
    session bigint not null,
    grant_id bigint not null,
    permits bigint not null,
    enqueued_at bigint not null,
    thread varchar(255) null,
    note varchar(1000) null,
    deadline_us bigint null,
    unique key rowlock_permit_waiter_grant_id (grant_id),
    key rowlock_permit_waiter_name_ticket (name, ticket),
    key rowlock_permit_waiter_session (session)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
