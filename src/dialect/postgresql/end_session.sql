-- Ends a session whatever its expiry: our own, or a predecessor's at reclaim.
-- $1 session
update rowlock_session set ended = true where id = $1::bigint and not ended
