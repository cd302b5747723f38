-- statement open_session
-- Opens a session. The id is random and made by the client; if the reply is lost the client opens
-- another and this row, referenced by nothing, expires.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address  $8 secret
-- $9 network namespace of its mailbox, or NULL
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret,
                             mailbox, expires_at, opened_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, {now} + $6, {now})

-- statement heartbeat
-- Extends a session that is still alive; one row changed, or none if it is dead or its revision
-- moved. Serialises with end_expired_session: one writer.
-- $1 session  $2 the revision we know
update rowlock_session
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $1 and revision = $2 and ended = 0 and expires_at > {now}

-- statement extend_session
-- Gives a session another time to live, from now on; one row changed, or none if it is dead. It is a
-- heartbeat too, and serialises like one: see heartbeat.sql.
-- $1 session  $2 time to live in µs
update rowlock_session
   set beats = beats + 1, ttl_us = $2, expires_at = {now} + $2
 where id = $1 and ended = 0 and expires_at > {now}
