-- Removes what 0002_queue.up.sql added. PostgreSQL named the index after its columns.
drop index if exists rowlock_waiter_session_thread_idx;
alter table rowlock_waiter
    drop column if exists thread,
    drop column if exists note,
    drop column if exists deadline_us;
