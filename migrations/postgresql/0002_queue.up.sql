-- What a place in a queue passes on to the lease that it becomes, and keys for the queue's hot path.
-- The table is made anew: before this migration nobody took places in queues, so nothing is lost.
--   name          of the lease that is waited for
--   ticket        the lowest is served first
--   session       who waits. The index is for a client that looks at all its places at once, for the
--                 deletion of its session, and for whoever follows a circle of waiters from a holder
--                 to what that waits for
--   grant_id      becomes the grant_id of the lease
--   mode          0 = exclusive, the only one so far
--   enqueued_at   for people
--   thread, note  of the waiter; copied to the lease
--   deadline_us   the lease ends so long after its grant; null = never
-- The key is (name, ticket) and there is none on the ticket alone: "the lowest ticket of a name" with
-- LIMIT 1 would tempt the planner, where statistics are old, to walk that one past every other queue.
drop table rowlock_waiter;
create table rowlock_waiter (
    name text collate "C" not null,
    ticket bigint not null generated always as identity,
    session bigint not null,
    grant_id bigint not null unique,
    mode smallint not null default 0,
    enqueued_at timestamptz not null,
    thread text,
    note text,
    deadline_us bigint,
    primary key (name, ticket)
) with (vacuum_truncate = off,
        -- A look for the lowest ticket steps over the index entries of those served before.
        autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
create index on rowlock_waiter (session, thread);
