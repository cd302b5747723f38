-- Extends a session that is still alive; one row changed, or none if it is dead, its revision
-- moved, or this is not the server that it was opened on. Serialises with end_expired_session on the
-- session row. SYSDATE is read after the row's lock was waited for. `beats` changes even if the
-- database's clock was set back: MySQL counts changed rows.
-- $1 session  $2 the revision we know
update rowlock_session m
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $1 and revision = $2 and ended = 0 and expires_at > {now} and {here}
