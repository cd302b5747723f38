drop table if exists rowlock_member;
drop table if exists rowlock_quorum;
