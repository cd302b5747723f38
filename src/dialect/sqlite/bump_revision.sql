-- Tells a session, through its next heartbeat, to look at its leases again. In the transaction that
-- takes one of them away, after the lease row.
-- $1 session
update rowlock_session set revision = revision + 1 where id = $1
