-- statement session_state
-- Whether a session is alive, and its revision. No row: the session is gone.
-- $1 session
select {live}::int, m.revision from rowlock_session m where m.id = $1::bigint

-- statement end_expired_session
-- Ends another client's session if it has expired. It can never be revived after this, and its leases are
-- free. If a heartbeat is in flight, this statement waits and then sees the new expiry (the re-check of a
-- changed row evaluates the clock anew). Commits on its own: a taker reads the lease only after this commit.
-- $1 session
update rowlock_session set ended = true
 where id = $1::bigint and not ended and expires_at <= {now}

-- statement end_session
-- Ends a session whatever its expiry: our own, or a predecessor's at reclaim.
-- $1 session
update rowlock_session set ended = true where id = $1::bigint and not ended

-- statement delete_session
-- Removes our own session when we know that no lease or ticket names it.
-- $1 session
delete from rowlock_session where id = $1::bigint

-- statement bump_revision
-- Makes a session re-read its leases: its next heartbeat sees the new revision. Runs in the transaction that
-- takes a lease away, after the lease row.
-- $1 session
update rowlock_session set revision = revision + 1 where id = $1::bigint

-- statement wake_address
-- Where to notify a session that its rows were changed, and its revision after the change. Read after the
-- commit: the notification is a hint that only moves the session's next heartbeat forward. No row: the
-- session is gone.
-- $1 session
-- wake-up address, secret, mailbox, revision
select wake_address, wake_secret, mailbox, revision from rowlock_session where id = $1::bigint

-- statement predecessors
-- The sessions of an owner that are not ended, except our own. Locks nothing: on MySQL the caller then ends
-- each by primary key; on SQLite this runs in a write transaction.
-- $1 owner  $2 my session
select id from rowlock_session where owner = $1 and id <> $2 and ended = 0 order by id

-- statement session_leases
-- Every lease that names a session. Scans the table: a column that every grant changes has no index.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs; who asked for its release within a time, or NULL,
--   and why; whether anybody asked, also at once
select l.name, l.grant_id, l.token, {until(l.deadline)},
       case when l.asked_for = l.grant_id then l.asked_by end, l.reason, coalesce(l.asked_for = l.grant_id, false)::int
  from rowlock_lock l
 where l.session = $1::bigint
 order by l.name

