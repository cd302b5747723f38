-- Holds of a shared_mutex and entries in its queue say so, and what an upgrade adds to a hold names that hold: it is
-- nothing without it. A hold that another client has asked for is marked. Entries name what is not released before they
-- are served, for the search for deadlocks.
--   kind       0: of a semaphore · 1: of a shared_mutex
--   base       of an upgrade: the grant id of the hold that it makes exclusive
--   requested  1: another client has asked for the release of this hold; its deadline is no later than its session's end
--   blocks     labels of other holds than those of `thread`, separated by |; null: none
alter table rowlock_permit add column kind smallint not null default 0, add column base bigint, add column requested smallint not null default 0;
alter table rowlock_permit_waiter add column kind smallint not null default 0, add column base bigint, add column blocks text;
alter table rowlock_waiter add column blocks text;
update rowlock_permit set kind = 1 where name in (select name from rowlock_semaphore where kind = 1);
update rowlock_permit_waiter set kind = 1 where name in (select name from rowlock_semaphore where kind = 1);
