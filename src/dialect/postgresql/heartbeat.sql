-- Extends a session that is still alive; one row changed, or none if it is dead, its revision
-- moved, or this is not the server that it was opened on. Serialises with end_expired_session on the
-- session row. The row is locked first and the clock read afterwards: an UPDATE that waited for the row and found it unchanged would go on with
-- the clock it read before the wait, and could revive a session that expired meanwhile. `beats`
-- changes even if the database's clock was set back.
-- $1 session  $2 the revision we know
with locked as materialized (
         select id from rowlock_session where id = $1::bigint for update),
     clock as materialized (
         select id, clock_timestamp() as now from locked)
update rowlock_session m
   set beats = m.beats + 1, expires_at = clock.now + m.ttl_us::float8 * interval '1 microsecond'
  from clock
 where m.id = clock.id and m.revision = $2::bigint and not m.ended and m.expires_at > clock.now
   and {here}
