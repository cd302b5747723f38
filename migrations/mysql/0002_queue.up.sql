-- What a place in a queue passes on to the lease that it becomes. The table is made anew, since only
-- MariaDB can add a column unless it is there, and a migration that was cut off must be repeatable.
-- Nothing is lost: before this migration nobody took places in queues.
--   ticket        the lowest is served first. Galera nodes hand out interleaved tickets: there the
--                 order is nearly that of arrival
--   name          of the lease that is waited for
--   session       who waits. The index is for a client that looks at all its places at once, and
--                 for whoever follows a circle of waiters from a holder to what that waits for
--   grant_id      becomes the grant_id of the lease. Delete rows by ticket: deleting by this key
--                 deadlocks with inserts
--   mode          0 = exclusive, the only one so far
--   enqueued_at   for people
--   thread, note  of the waiter; copied to the lease
--   deadline_us   the lease ends so long after its grant; null = never
drop table if exists rowlock_waiter;
create table if not exists rowlock_waiter (
    ticket bigint not null auto_increment primary key,
    name varbinary(255) not null,
    session bigint not null,
    grant_id bigint not null,
    mode smallint not null default 0,
    enqueued_at bigint not null,
    thread varchar(255) null,
    note varchar(1000) null,
    deadline_us bigint null,
    unique key rowlock_waiter_grant_id (grant_id),
    key rowlock_waiter_name_ticket (name, ticket),
    key rowlock_waiter_session_thread (session, thread)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
