drop table if exists rowlock_run;
