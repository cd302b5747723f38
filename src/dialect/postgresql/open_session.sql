-- Opens a session. The id is random and made by the client; if the reply is lost the client opens
-- another and this row, referenced by nothing, expires. The commit is asynchronous: what hangs on a
-- session is committed after it, and its own wait for the disk, or for a standby, covers all of the log
-- before it. A crash that loses the session has lost its leases and its places in queues, too; a client
-- that goes on finds with the next statement that its session is not there.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs
with c as materialized (
         select set_config('synchronous_commit', 'off', true))
insert into rowlock_session (id, owner, host, pid, program, ttl_us, expires_at, opened_at)
select $1::bigint, $2::text, $3::text, $4::bigint, $5::text, $6::bigint,
       clock_timestamp() + $6::bigint * interval '1 microsecond', clock_timestamp()
  from c
