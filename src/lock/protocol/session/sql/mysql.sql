-- statement open_session
-- Opens a session if the token floor's row names this server; otherwise changes no row, and the client runs
-- meet_server first. The client makes the random id; if the reply is lost it opens another session, and this
-- row, referenced by nothing, expires. At READ COMMITTED the floor's row is read, not locked.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address  $8 secret
-- $9 network namespace of its mailbox, or NULL  $10 this server, or '' if it does not identify itself
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret,
                             mailbox, server_identity, expires_at, opened_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {now} + $6, {now}
  from rowlock_token_floor f where f.id = 1 and (f.server_identity = $10 or octet_length($10) = 0)

-- statement meet_server
-- Records this server in the token floor's row. If the row named another server, raises the floor past every
-- token that the previous primary may have granted without this server learning of it (docs/adr/0028). Of two
-- concurrent runs the second waits for the row, finds it changed and leaves it. Assignments are evaluated
-- left to right, so the compared column comes last.
-- $1 this server
update rowlock_token_floor
   set floor = if(server_identity = '', floor, floor + 4294967296), raised_at = {now},
       server_identity = $1
 where id = 1 and server_identity <> $1 and octet_length($1) > 0

-- statement state_settings
-- The settings of a connection that we own, in one round trip: {stated} has the reasons. SET changes all or none.
set {stated}
