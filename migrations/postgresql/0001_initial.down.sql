-- Removes what 0001_initial.up.sql made, with every lease, queue and version in it. Tokens start
-- again from 1 afterwards: whoever compares tokens with older ones must forget those.
drop table if exists rowlock_waiter;
drop table if exists rowlock_lease;
drop table if exists rowlock_session;
drop table if exists rowlock_version;
drop table if exists rowlock_token_floor;
