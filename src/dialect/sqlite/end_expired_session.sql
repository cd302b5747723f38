-- Ends another client's session if it has expired: from here on it cannot come back, and its leases
-- are free. One writer: no heartbeat can be in between. A
-- commit of its own: takers look only afterwards.
-- $1 session
update rowlock_session set ended = 1 where id = $1 and ended = 0 and expires_at <= {now}
