-- Ends a session whatever its expiry: our own, or a predecessor's at reclaim.
-- $1 session
update rowlock_session set ended = 1 where id = $1 and ended = 0
