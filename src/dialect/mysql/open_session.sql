-- Opens a session, if the floor's row knows this server; else no row is changed, and meet_server.sql
-- comes first. The id is random and made by the client; if the reply is lost the client opens another
-- and this row, referenced by nothing, expires. At READ COMMITTED the floor's row is read, not locked.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address  $8 secret
-- $9 network namespace of its mailbox, or NULL  $10 this server, or '' if it tells none
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret,
                             mailbox, server_identity, expires_at, opened_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {now} + $6, {now}
  from rowlock_token_floor f where f.id = 1 and (f.server_identity = $10 or octet_length($10) = 0)
