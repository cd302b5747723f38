-- What an operator demands of a name, whatever kind of lock it is of. A row stays until the policy is removed: no reaper
-- deletes it. Clients that acquire do not read this table.
--   name         of leases, semaphores and shared_mutexes
--   max_hold_us  the longest time for which one grant may be held, counted from its acquisition, in microseconds; 0: no
--                limit. A reaper asks for the release of what is held longer
create table if not exists rowlock_policy (
    name varbinary(255) not null primary key,
    max_hold_us bigint not null check (max_hold_us >= 0)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
