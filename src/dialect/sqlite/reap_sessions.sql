-- Ends expired sessions, a batch.
-- $1 batch
update rowlock_session set ended = 1
 where id in (select id from rowlock_session where ended = 0 and expires_at <= {now} limit $1)
