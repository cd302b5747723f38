-- Adds to a history that an earlier version made the columns that it lacks; before on.sql.
alter table rowlock_history add column if not exists counter_kind smallint, add column if not exists permits bigint;
