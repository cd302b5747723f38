-- Removes what 0002_queue.up.sql added; dropping `session`'s index by its columns needs its name, which
-- PostgreSQL made from them.
drop index if exists rowlock_waiter_session_idx;
alter table rowlock_waiter
    drop column if exists thread,
    drop column if exists note,
    drop column if exists deadline_us;
