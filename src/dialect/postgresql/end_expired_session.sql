-- Ends another client's session if it has expired: from here on it cannot come back, and its leases
-- are free. Behind a heartbeat in flight this waits and then sees the new expiry (the re-check of a
-- changed row evaluates the clock anew). A commit of its own: takers look only afterwards.
-- $1 session
update rowlock_session set ended = true
 where id = $1::bigint and not ended and expires_at <= clock_timestamp()
