-- Opens a session. The id is random and made by the client; if the reply is lost the client opens
-- another and this row, referenced by nothing, expires. The commit is asynchronous: what hangs on a
-- session is committed after it, and its own wait for the disk, or for a standby, covers all of the log
-- before it. A crash that loses the session has lost its leases and its places in queues, too; a client
-- that goes on finds with the next statement that its session is not there.
-- The first session on a server that the floor's row does not know raises the floor, past all that the
-- primary before may have granted and this server never heard of; the proof is in docs/adr/0028. Of two
-- at once the second waits for the row, finds it changed and leaves it: nobody is granted anything but
-- by a session whose opening saw the floor raised. That commit needs no wait of its own either.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address  $8 secret
-- $9 network namespace of its mailbox, or NULL  $10 this server, or '' if it tells none
with c as materialized (
         select set_config('synchronous_commit', 'off', true)),
     f as (
         update rowlock_token_floor f
            set floor = case f.server_identity when '' then f.floor else f.floor + 4294967296 end,
                server_identity = $10::text, raised_at = clock_timestamp()
          where f.id = 1 and f.server_identity <> $10::text and $10::text <> '')
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret,
                             mailbox, server_identity, expires_at, opened_at)
select $1::bigint, $2::text, $3::text, $4::bigint, $5::text, $6::bigint, $7::bigint, $8::text,
       $9::bigint, $10::text,
       clock_timestamp() + $6::bigint::float8 * interval '1 microsecond', clock_timestamp()
  from c
