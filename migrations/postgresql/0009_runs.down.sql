drop table rowlock_run;
