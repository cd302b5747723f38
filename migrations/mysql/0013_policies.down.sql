drop table if exists rowlock_policy;
