-- statement session_state
-- Whether a session lives, and its revision. No row: gone.
-- $1 session
select {live}, m.revision from rowlock_session m where m.id = $1

-- statement end_expired_session
-- Ends another client's session if it has expired: from here on it cannot come back, and its leases
-- are free. Behind a heartbeat in flight this waits for the row and then reads the new expiry; in an SQLite file,
-- with its one writer, there is none in flight. A commit of its own: takers look only afterwards.
-- $1 session
update rowlock_session set ended = 1 where id = $1 and ended = 0 and expires_at <= {now}

-- statement end_session
-- Ends a session whatever its expiry: our own, or a predecessor's at reclaim.
-- $1 session
update rowlock_session set ended = 1 where id = $1 and ended = 0

-- statement delete_session
-- Removes our own session when we know that no lease or ticket names it.
-- $1 session
delete from rowlock_session where id = $1

-- statement bump_revision
-- Tells a session, through its next heartbeat, to look at its leases again. In the transaction that
-- takes one of them away, after the lease row.
-- $1 session
update rowlock_session set revision = revision + 1 where id = $1

-- statement wake_address
-- How a session is told that its rows were changed, and the revision that it has since. Read after the commit:
-- a hint, which only moves the session's next heartbeat forward. No row: the session is gone.
-- $1 session
-- wake-up address, secret, mailbox, revision
select wake_address, wake_secret, mailbox, revision from rowlock_session where id = $1

-- statement predecessors
-- The sessions of an owner that are not ended, but for our own. Locks nothing: on MySQL each is ended by
-- its primary key afterwards; on SQLite this stands in a write transaction.
-- $1 owner  $2 my session
select id from rowlock_session where owner = $1 and id <> $2 and ended = 0 order by id

-- statement session_leases
-- Every lease that names a session. Scans the table: no index on a column that each grant changes.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs
select l.name, l.grant_id, l.token, l.deadline - {now}
  from rowlock_lease l
 where l.session = $1
 order by l.name
