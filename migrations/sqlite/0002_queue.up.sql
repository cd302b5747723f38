-- What a place in a queue passes on to the lease that it becomes.
--   thread, note  of the waiter; copied to the lease
--   deadline_us   the lease ends so long after its grant; null = never
-- The index is for a client that looks at all its places at once, and for the deletion of its session.
alter table rowlock_waiter add column thread text;
alter table rowlock_waiter add column note text;
alter table rowlock_waiter add column deadline_us integer;
create index rowlock_waiter_session on rowlock_waiter (session);
