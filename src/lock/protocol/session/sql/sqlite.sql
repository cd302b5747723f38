-- statement open_session
-- Opens a session. The client makes the random id; if the reply is lost it opens another session, and this
-- row, referenced by nothing, expires.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address  $8 secret
-- $9 network namespace of its mailbox, or NULL
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret,
                             mailbox, expires_at, opened_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, {now} + $6, {now})
