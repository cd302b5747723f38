-- Every hold of permits ends with this, and every place in a queue for some; and the semaphores are gone.
drop table if exists rowlock_permit_waiter;
drop table if exists rowlock_permit;
drop table if exists rowlock_semaphore;
