-- Removes what was recorded, after off.sql.
drop table if exists rowlock_history;
