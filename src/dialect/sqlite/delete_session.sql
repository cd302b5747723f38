-- Removes our own session when we know that no lease or ticket names it.
-- $1 session
delete from rowlock_session where id = $1
