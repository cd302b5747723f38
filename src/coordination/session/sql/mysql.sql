-- statement open_session
-- Opens a session, if the floor's row knows this server; else no row is changed, and meet_server.sql
-- comes first. The id is random and made by the client; if the reply is lost the client opens another
-- and this row, referenced by nothing, expires. At READ COMMITTED the floor's row is read, not locked.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address  $8 secret
-- $9 network namespace of its mailbox, or NULL  $10 this server, or '' if it tells none
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret,
                             mailbox, server_identity, expires_at, opened_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {now} + $6, {now}
  from rowlock_token_floor f where f.id = 1 and (f.server_identity = $10 or octet_length($10) = 0)

-- statement heartbeat
-- Extends a session that is still alive; one row changed, or none if it is dead, its revision
-- moved, or this is not the server that it was opened on. Serialises with end_expired_session on the
-- session row. SYSDATE is read after the row's lock was waited for. `beats` changes even if the
-- database's clock was set back: MySQL counts changed rows.
-- $1 session  $2 the revision we know
update rowlock_session m
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $1 and revision = $2 and ended = 0 and expires_at > {now} and {here}

-- statement extend_session
-- Gives a session another time to live, from now on; one row changed, or none if it is dead. It is a
-- heartbeat too, and serialises like one: see heartbeat.sql.
-- $1 session  $2 time to live in µs
update rowlock_session m
   set beats = beats + 1, ttl_us = $2, expires_at = {now} + $2
 where id = $1 and ended = 0 and expires_at > {now} and {here}

-- statement meet_server
-- Writes into the floor's row which server this is, and raises the floor if another one stood there:
-- past all that the primary before may have granted and this server never heard of (docs/adr/0028). Of
-- two at once the second waits for the row, finds it changed and leaves it. Assignments go from left to
-- right: the compared column comes last.
-- $1 this server
update rowlock_token_floor
   set floor = if(server_identity = '', floor, floor + 4294967296), raised_at = {now},
       server_identity = $1
 where id = 1 and server_identity <> $1 and octet_length($1) > 0
