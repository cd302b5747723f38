-- What a place in a queue passes on to the lease that it becomes.
--   thread, note  of the waiter; copied to the lease
--   deadline_us   the lease ends so long after its grant; null = never
-- The index is for a client that looks at all its places at once, for the deletion of its session, and
-- for whoever follows a circle of waiters from a holder to what that waits for.
alter table rowlock_waiter
    add column thread text,
    add column note text,
    add column deadline_us bigint;
create index on rowlock_waiter (session, thread);
