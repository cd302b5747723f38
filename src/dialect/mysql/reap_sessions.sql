-- Ends expired sessions, a batch, in key order. A row that does not match is not kept locked at READ
-- COMMITTED, so live heartbeats pass.
-- $1 batch
update rowlock_session set ended = 1 where ended = 0 and expires_at <= {now} order by id limit $1
