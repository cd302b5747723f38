-- Gives a session another time to live, from now on; one row changed, or none if it is dead. It is a
-- heartbeat too, and serialises like one: see heartbeat.sql.
-- $1 session  $2 time to live in µs
update rowlock_session m
   set beats = beats + 1, ttl_us = $2, expires_at = {now} + $2
 where id = $1 and ended = 0 and expires_at > {now} and {here}
