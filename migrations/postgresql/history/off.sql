-- Stops the recording. What was recorded stays.
drop trigger if exists history_insert on rowlock_lease;
drop trigger if exists history_update on rowlock_lease;
drop trigger if exists history_delete on rowlock_lease;
drop trigger if exists history on rowlock_waiter;
drop trigger if exists history_insert on rowlock_session;
drop trigger if exists history_update on rowlock_session;
drop trigger if exists history_delete on rowlock_session;
drop function if exists rowlock_history_lease();
drop function if exists rowlock_history_waiter();
drop function if exists rowlock_history_session();
