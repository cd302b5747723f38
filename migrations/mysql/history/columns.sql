-- Adds to a history that an earlier version made the columns that it lacks; before on.sql.
alter table rowlock_history add column counter_kind smallint null, add column permits bigint null;
