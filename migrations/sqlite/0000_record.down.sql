-- Runs last when everything is removed.
drop table if exists rowlock_migration;
