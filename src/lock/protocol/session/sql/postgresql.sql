-- statement open_session
-- Opens a session. The client makes the random id; if the reply is lost it opens another session, and this
-- row, referenced by nothing, expires. The commit is asynchronous: every lease and ticket of a session is
-- committed after it, and that commit's own wait for the disk, or for a standby, covers all of the log before
-- it. A crash that loses the session also loses its leases and tickets; a client that goes on learns from its
-- next statement that the session is gone.
-- The first session on a server that the token floor's row does not name raises the floor, past every token
-- that the previous primary may have granted without this server learning of it; the proof is in
-- docs/adr/0028. Of two concurrent openings the second waits for the row, finds it changed and leaves it:
-- every grant goes to a session whose opening saw the floor raised. That commit needs no wait of its own
-- either.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address  $8 secret
-- $9 network namespace of its mailbox, or NULL  $10 this server, or '' if it does not identify itself
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

-- statement heartbeat
-- Extends a live session. Changes one row, or none if the session is dead, its revision moved, or it was
-- opened on another server. Serialises with end_expired_session on the session row. The row is locked first
-- and the clock read afterwards: an UPDATE that waited for the row and found it unchanged would use the clock
-- it read before the wait, and could revive a session that expired meanwhile. `beats` changes even if the
-- database's clock was set back.
-- $1 session  $2 the revision we know
with locked as materialized (
         select id from rowlock_session where id = $1::bigint for update),
     clock as materialized (
         select id, clock_timestamp() as now from locked)
update rowlock_session m
   set beats = m.beats + 1, expires_at = clock.now + m.ttl_us::float8 * interval '1 microsecond'
  from clock
 where m.id = clock.id and m.revision = $2::bigint and not m.ended and m.expires_at > clock.now
   and {here}

-- statement extend_session
-- Sets a session's time to live, counted from now. Changes one row, or none if the session is dead. It also
-- acts as a heartbeat and serialises like one: see heartbeat.
-- $1 session  $2 time to live in µs
with locked as materialized (
         select id from rowlock_session where id = $1::bigint for update),
     clock as materialized (
         select id, clock_timestamp() as now from locked)
update rowlock_session m
   set beats = m.beats + 1, ttl_us = $2::bigint,
       expires_at = clock.now + $2::bigint::float8 * interval '1 microsecond'
  from clock
 where m.id = clock.id and not m.ended and m.expires_at > clock.now
   and {here}

-- statement state_settings
-- Settings of a connection that we own and on which no session_setup is run.
-- $1 statement timeout in ms, 0 = none  $2 limit on an idle connection in ms, 0 = none
select {stated},
       pg_catalog.set_config('lock_timeout', '0', false),
       pg_catalog.set_config('statement_timeout', $1::pg_catalog.text, false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', $1::pg_catalog.text, false),
       case when pg_catalog.current_setting('idle_session_timeout', true) is not null
            then pg_catalog.set_config('idle_session_timeout', $2::pg_catalog.text, false) end

-- statement session_setup
-- Settings of a connection that we own: {stated} has most of them, and the reasons.
-- Timeouts: the server ends a statement that its client may have given up. Plans: all look-ups are by primary
-- key, so a generic plan is as good as a custom one.
-- The first column identifies the server: see server_identity. The second is the quoted schema of our tables,
-- or NULL.
--
-- The search path becomes pg_catalog, that schema, pg_temp. A role that may create objects in another schema
-- of the configured path cannot shadow anything we use; a role that may create objects in the schema of our
-- tables could only add what matches better than pg_catalog's own, and no statement of ours leaves room for
-- that (docs/adr/0033). This statement still runs under the configured path, so it names every schema.
-- $1 lock timeout in ms  $2 statement timeout in ms  $3 the table of leases, with its schema if we know it
with {home}
select case when not pg_catalog.pg_is_in_recovery()
            then (select system_identifier::pg_catalog.text from pg_catalog.pg_control_system())
                 operator(pg_catalog.||) '/' operator(pg_catalog.||) {timeline} end,
       home.name, {settings}
  from home

-- statement session_setup_only
-- As session_setup, for a server that does not let us ask for its identity (server_timeline may still find
-- part of it).
-- $1 lock timeout in ms  $2 statement timeout in ms  $3 the table of leases, with its schema if we know it
with {home}
select null, home.name, {settings} from home

-- statement server_identity
-- Identifies the server: its cluster's system identifier and the timeline it writes. A restart keeps both,
-- also after a crash; a promotion or a point-in-time recovery begins a timeline. NULL on a standby.
-- pg_control_checkpoint() would report the timeline late, with the next checkpoint. Every role may call these
-- functions unless an administrator has revoked the right; the client then tries server_timeline.
select case when not pg_catalog.pg_is_in_recovery()
            then (select system_identifier::pg_catalog.text from pg_catalog.pg_control_system())
                 operator(pg_catalog.||) '/' operator(pg_catalog.||) {timeline} end

-- statement server_timeline
-- As server_identity, where pg_control_system() is forbidden: detects a promotion, but not another cluster at
-- the same timeline.
select case when not pg_catalog.pg_is_in_recovery() then '/' operator(pg_catalog.||) {timeline} end

-- statement predecessors
-- Locks the sessions of an owner that are not ended, except our own: their heartbeats wait.
-- $1 owner  $2 my session
select id from rowlock_session
 where owner = $1::text and id <> $2::bigint and not ended order by id for update

-- statement running_processes
-- Which of these processes of the server still run a statement, or are in a transaction. Of another role's, which may have
-- the number of one that has ended, the state is not shown.
-- $1 numbers of processes, as an array's text
select a.pid::bigint from pg_catalog.pg_stat_activity a
 where a.pid = any ($1::text::int[]) and a.state <> 'idle'::text
