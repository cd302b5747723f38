-- Every hold of a shared_mutex ends with this, and every place in its queue. If the first step of an interrupted run
-- dropped `kind`, it had deleted them before.
delete from rowlock_permit_waiter where name in (select name from rowlock_semaphore where kind = 1);
delete from rowlock_permit where name in (select name from rowlock_semaphore where kind = 1);
delete from rowlock_semaphore where kind = 1;
alter table rowlock_semaphore drop constraint rowlock_semaphore_kind, drop constraint rowlock_semaphore_used,
    drop column changed_at, drop column kind;
