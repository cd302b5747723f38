-- Adds to a history that an earlier version made the columns that it lacks: those of requests and upgrades; after
-- columns.sql.
alter table rowlock_history add column if not exists base bigint, add column if not exists reason text;
