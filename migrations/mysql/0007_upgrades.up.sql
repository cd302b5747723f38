-- Holds of a shared_mutex and entries in its queue say so, and what an upgrade adds to a hold names that hold: it is
-- nothing without it.
--   kind  0: of a semaphore · 1: of a shared_mutex
--   base  of an upgrade: the grant id of the hold that it makes exclusive
alter table rowlock_permit add column kind smallint not null default 0, add column base bigint;
alter table rowlock_permit_waiter add column kind smallint not null default 0, add column base bigint;
update rowlock_permit set kind = 1 where name in (select name from rowlock_semaphore where kind = 1);
update rowlock_permit_waiter set kind = 1 where name in (select name from rowlock_semaphore where kind = 1);
