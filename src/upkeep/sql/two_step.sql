-- statement delete_ended_session
-- Deletes one ended session. An acquire that was in flight when its session ended may still write the id
-- afterwards: a lease whose session is missing is free.
-- $1 session
delete from rowlock_session where id = $1 and ended = 1
