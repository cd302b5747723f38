-- Adds to a history that an earlier version made the columns that it lacks; before on.sql.
alter table rowlock_history add column counter_kind integer;
alter table rowlock_history add column permits integer;
