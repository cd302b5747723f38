-- Removes what 0001_initial.up.sql made, with every hold, queue entry and version in it. Tokens start
-- again from 1 afterwards: whoever compares tokens with older ones must forget those. The sessions
-- last: while this waits for another table, sessions are kept alive.
drop table if exists rowlock_lock;
drop table if exists rowlock_ticket;
drop table if exists rowlock_hold;
drop table if exists rowlock_run;
drop table if exists rowlock_barrier;
drop table if exists rowlock_party;
drop table if exists rowlock_policy;
drop table if exists rowlock_quorum;
drop table if exists rowlock_member;
drop table if exists rowlock_version;
drop table if exists rowlock_token_floor;
drop table if exists rowlock_session;
