drop table if exists rowlock_party;
drop table if exists rowlock_barrier;
