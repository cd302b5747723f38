-- What a place in a queue passes on to the lease that it becomes.
--   thread, note  of the waiter; copied to the lease
--   deadline_us   the lease ends so long after its grant; null = never
-- The index is for a client that looks at all its places at once, for the deletion of its session, and
-- for whoever follows a circle of waiters from a holder to what that waits for.
alter table rowlock_waiter add column thread text;
alter table rowlock_waiter add column note text;
alter table rowlock_waiter add column deadline_us integer;
create index rowlock_waiter_session_thread on rowlock_waiter (session, thread);
