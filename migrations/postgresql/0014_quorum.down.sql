drop table rowlock_member;
drop table rowlock_quorum;
