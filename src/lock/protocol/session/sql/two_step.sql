-- statement extend_session
-- Sets a session's time to live, counted from now. Changes one row, or none if the session is dead. It also
-- acts as a heartbeat and serialises like one: see heartbeat.
-- $1 session  $2 time to live in µs
update rowlock_session as m
   set beats = beats + 1, ttl_us = $2, expires_at = {now} + $2
 where id = $1 and ended = 0 and expires_at > {now} and {here}

-- statement heartbeat
-- Extends a live session. Changes one row, or none if the session is dead, its revision moved, or it was
-- opened on another server. Serialises with end_expired_session on the session row. SYSDATE is evaluated
-- after the wait for the row lock. `beats` changes even if the database's clock was set back: MySQL counts
-- changed rows.
-- $1 session  $2 the revision we know
update rowlock_session as m
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $1 and revision = $2 and ended = 0 and expires_at > {now} and {here}
