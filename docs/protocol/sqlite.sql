-- The statements of docs/protocol.md for SQLite 3.35 or newer, beside common.sql; in the form of postgresql.sql.
-- SQLite knows $1 … $n as ?1 … ?n.

-- fragment now
-- Microseconds since 1970, UTC, in steps of a millisecond.
cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000

-- fragment live
-- Whether session m can be granted anything.
(m.ended = 0 and m.expires_at > {now})

-- fragment join
cross join

-- fragment greatest
max

-- fragment least
min

-- statement heartbeat
-- $1 session  $2 the revision we know
update rowlock_session
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $1 and revision = $2 and ended = 0 and expires_at > {now}

-- statement fence
-- In your transaction, which begins with BEGIN IMMEDIATE: it is the only writer until it ends. Heartbeats wait
-- meanwhile, so it renews the session.
-- $1 name  $2 my session  $3 token
-- → one row changed if it is held; else roll back
update rowlock_session
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $2 and ended = 0 and expires_at > {now}
   and exists (select 1 from rowlock_lock l
                where l.name = $1 and l.session = $2 and l.token = $3 and coalesce(l.deadline > {now}, 1))

-- statement lock_lease
-- In one transaction with bump_revision and shorten_lease, before them.
-- $1 name  $2 token  $3 session
select 1 from rowlock_lock where name = $1 and token = $2 and session = $3

-- statement shorten_lease
-- $1 name  $2 session  $3 how long from now, in µs  $4 who asks  $5 why, or NULL
update rowlock_lock
   set deadline = (select min(coalesce(rowlock_lock.deadline, max(m.expires_at, {now} + $3)),
                              max(m.expires_at, {now} + $3))
                     from rowlock_session m where m.id = $2),
       asked_by = case when not coalesce(asked_for = grant_id and asked_by is null, 0) then $4 end,
       reason = case when not coalesce(asked_for = grant_id and asked_by is null, 0) then $5 end,
       asked_for = grant_id
 where name = $1 and exists (select 1 from rowlock_session m where m.id = $2)
