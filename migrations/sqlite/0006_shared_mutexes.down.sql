-- Every hold of a shared_mutex ends with this, and every place in its queue.
delete from rowlock_permit_waiter where name in (select name from rowlock_semaphore where kind = 1);
delete from rowlock_permit where name in (select name from rowlock_semaphore where kind = 1);
delete from rowlock_semaphore where kind = 1;
alter table rowlock_semaphore drop column changed_at;
alter table rowlock_semaphore drop column kind;
