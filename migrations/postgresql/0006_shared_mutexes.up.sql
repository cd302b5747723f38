-- Read/write locks (shared_mutex). Each is a counter as a semaphore's, where the permits of a hold say its mode:
-- shared 1, upgradeable 10^9, exclusive all, 2·10^9 - 1. So any number of shared holds fit beside each other and beside
-- one upgradeable hold, two upgradeable holds do not fit, and nothing fits beside an exclusive hold.
--
--   kind        0: a semaphore · 1: a shared_mutex, whose row may be deleted while it is not in use
--   changed_at  of kind 1: when permits were last taken or given back
alter table rowlock_semaphore
    add column kind smallint not null default 0 check (kind in (0, 1)),
    add column changed_at timestamptz not null default 'epoch',
    -- A client of the version before could set another capacity.
    add check (kind = 0 or capacity = 1999999999);
