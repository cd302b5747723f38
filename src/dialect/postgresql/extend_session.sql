-- Gives a session another time to live, from now on; one row changed, or none if it is dead. It is a
-- heartbeat too, and serialises like one: see heartbeat.sql.
-- $1 session  $2 time to live in µs
with locked as materialized (
         select id from rowlock_session where id = $1::bigint for update),
     clock as materialized (
         select id, clock_timestamp() as now from locked)
update rowlock_session m
   set beats = m.beats + 1, ttl_us = $2::bigint,
       expires_at = clock.now + $2::bigint::float8 * interval '1 microsecond'
  from clock
 where m.id = clock.id and not m.ended and m.expires_at > clock.now
   and {here}
