-- Adds to a history that an earlier version made the columns that it lacks: those of requests and upgrades; after
-- columns.sql.
alter table rowlock_history add column base integer;
alter table rowlock_history add column reason text;
