-- statement open_session
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

-- statement heartbeat
-- Extends a session that is still alive; one row changed, or none if it is dead, its revision
-- moved, or this is not the server that it was opened on. Serialises with end_expired_session on the
-- session row. The row is locked first and the clock read afterwards: an UPDATE that waited for the row and found it unchanged would go on with
-- the clock it read before the wait, and could revive a session that expired meanwhile. `beats`
-- changes even if the database's clock was set back.
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

-- statement session_state
-- Whether a session lives, and its revision. No row: gone.
-- $1 session
select {live}::int, m.revision from rowlock_session m where m.id = $1::bigint

-- statement end_expired_session
-- Ends another client's session if it has expired: from here on it cannot come back, and its leases
-- are free. Behind a heartbeat in flight this waits and then sees the new expiry (the re-check of a
-- changed row evaluates the clock anew). A commit of its own: takers look only afterwards.
-- $1 session
update rowlock_session set ended = true
 where id = $1::bigint and not ended and expires_at <= clock_timestamp()

-- statement end_session
-- Ends a session whatever its expiry: our own, or a predecessor's at reclaim.
-- $1 session
update rowlock_session set ended = true where id = $1::bigint and not ended

-- statement delete_session
-- Removes our own session when we know that no lease or ticket names it.
-- $1 session
delete from rowlock_session where id = $1::bigint

-- statement bump_revision
-- Tells a session, through its next heartbeat, to look at its leases again. In the transaction that
-- takes one of them away, after the lease row.
-- $1 session
update rowlock_session set revision = revision + 1 where id = $1::bigint

-- statement extend_session
-- Gives a session another time to live, from now on; one row changed, or none if it is dead. It is a
-- heartbeat too, and serialises like one: see heartbeat.sql.
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

-- statement wake_address
-- How a session is told that its rows were changed, and the revision that it has since. Read after the commit:
-- a hint, which only moves the session's next heartbeat forward. No row: the session is gone.
-- $1 session
-- wake-up address, secret, mailbox, revision
select wake_address, wake_secret, mailbox, revision from rowlock_session where id = $1::bigint

-- statement session_setup
-- Settings of a connection that we own. Isolation: READ COMMITTED, which the compare-and-set
-- protocol is proved at. Durability: a grant must survive a crash, so `off` becomes `on` and anything
-- stricter stays. Timeouts: the server ends a statement that its client may have given up. Plans: all
-- look-ups are by primary key, so a generic plan is as good as one made for the values.
-- The first column tells which server this is: server_identity.sql has its reasons. The second is the
-- schema of our tables, quoted, or NULL.
--
-- The search path becomes pg_catalog, that schema, pg_temp: whoever may create in another schema of the
-- path that was configured cannot plant anything in our way, and in that of our tables only what matches
-- better than pg_catalog's own, which no statement of ours leaves room for (docs/adr/0033). This statement
-- runs under the configured path still, so it names every schema.
-- $1 lock timeout in ms  $2 statement timeout in ms  $3 the table of leases, with its schema if we know it
with {home}
select case when not pg_catalog.pg_is_in_recovery()
            then (select system_identifier::pg_catalog.text from pg_catalog.pg_control_system())
                 operator(pg_catalog.||) '/' operator(pg_catalog.||) {timeline} end,
       home.name, {settings}
  from home

-- statement session_setup_only
-- As session_setup.sql, where the server does not let us ask which one it is (server_timeline.sql does
-- then, perhaps).
-- $1 lock timeout in ms  $2 statement timeout in ms  $3 the table of leases, with its schema if we know it
with {home}
select null, home.name, {settings} from home

-- statement server_identity
-- Which server this is: its cluster's number and the timeline it writes. A restart, also after a crash,
-- goes on with both; a promotion or a recovery to a point in time begins a timeline. NULL on a standby.
-- pg_control_checkpoint() would tell the timeline late, with the next checkpoint. Everybody may call
-- these functions unless an administrator has taken the right away: then server_timeline.sql is tried.
select case when not pg_catalog.pg_is_in_recovery()
            then (select system_identifier::pg_catalog.text from pg_catalog.pg_control_system())
                 operator(pg_catalog.||) '/' operator(pg_catalog.||) {timeline} end

-- statement server_timeline
-- As server_identity.sql, where pg_control_system() is forbidden: promotions are seen, another cluster
-- that is at the same timeline is not.
select case when not pg_catalog.pg_is_in_recovery() then '/' operator(pg_catalog.||) {timeline} end

-- statement predecessors
-- Locks the sessions of an owner that are not ended, but for our own: their heartbeats wait.
-- $1 owner  $2 my session
select id from rowlock_session
 where owner = $1::text and id <> $2::bigint and not ended order by id for update

-- statement session_leases
-- Every lease that names a session. Scans the table: no index on a column that each grant changes.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs
select l.name, l.grant_id, l.token, (extract(epoch from l.deadline - clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint
  from rowlock_lease l
 where l.session = $1::bigint
 order by l.name
