-- What an operator demands of a name, whatever kind of lock it is of. A row stays until the policy is removed: no reaper
-- deletes it. Clients that acquire do not read this table.
--   name         of leases, semaphores and shared_mutexes
--   max_hold_us  the longest time for which one grant may be held, counted from its acquisition, in microseconds; 0: no
--                limit. A reaper asks for the release of what is held longer
create table rowlock_policy (
    name text primary key not null,
    max_hold_us integer not null check (max_hold_us >= 0)
) without rowid;
