-- statement open_session
-- Opens a session. The client makes the random id; if the reply is lost it opens another session, and this
-- row, referenced by nothing, expires.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address  $8 secret
-- $9 network namespace of its mailbox, or NULL
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret,
                             mailbox, expires_at, opened_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, {now} + $6, {now})

-- statement heartbeat
-- Extends a live session. Changes one row, or none if the session is dead or its revision moved. Serialises
-- with end_expired_session: SQLite has one writer.
-- $1 session  $2 the revision we know
update rowlock_session
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $1 and revision = $2 and ended = 0 and expires_at > {now}

-- statement extend_session
-- Sets a session's time to live, counted from now. Changes one row, or none if the session is dead. It also
-- acts as a heartbeat and serialises like one: see heartbeat.
-- $1 session  $2 time to live in µs
update rowlock_session
   set beats = beats + 1, ttl_us = $2, expires_at = {now} + $2
 where id = $1 and ended = 0 and expires_at > {now}
