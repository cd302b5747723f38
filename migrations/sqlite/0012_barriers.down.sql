drop table rowlock_party;
drop table rowlock_barrier;
