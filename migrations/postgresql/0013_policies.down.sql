drop table rowlock_policy;
