-- The statements of docs/protocol.md for PostgreSQL 12 or newer. A section begins with `-- statement NAME` or
-- `-- fragment NAME`; {NAME} in a statement stands for that fragment. $1 … $n are parameters. Write your prefix in the
-- place of `rowlock_` in the names of tables. READ COMMITTED, each statement a transaction of its own, unless the page
-- says otherwise.

-- fragment now
clock_timestamp()

-- fragment epoch
-- A time that has passed, for the transcripts.
'epoch'::timestamptz

-- fragment timeline
substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)

-- fragment here
-- Whether session m was opened on this server and its timeline.
(m.server_identity = '' or right(m.server_identity, 8) = {timeline})

-- fragment unexpired
(not m.ended and m.expires_at > clock_timestamp())

-- fragment live
-- Whether session m can be granted anything.
({unexpired} and {here})

-- fragment waits
-- Whether entry w of session m can be served: its session lives, its caller's time limit has not passed, and if it is an
-- upgrade the hold that it upgrades lives.
({live} and coalesce(w.waits_until > clock_timestamp(), true)
 and (w.base is null
      or exists (select from rowlock_hold b
                  where b.name = w.name and b.grant_id = w.base and b.session = w.session
                    and not coalesce(b.deadline <= clock_timestamp(), false))))

-- fragment holder_gone
-- Whether lock l, left-joined to the session s of its holder, has no holder, or one that has ended.
(l.session is null or s.id is null or s.ended or coalesce(l.deadline <= clock_timestamp(), false))

-- fragment free
-- Whether lock l may be granted as a lease: nobody holds it or a part of it, and it is no semaphore.
({holder_gone} and coalesce(l.used = 0 and l.capacity is null, true))

-- fragment parts
-- 1 = parts of lock l are held, 2 = it is a semaphore, 0 = neither.
case when l.capacity is not null then 2 else (coalesce(l.used, 0) <> 0)::int end

-- fragment expired
-- Whether s holds the lock l, has expired, and is not ended: to be ended before the lock is free.
(coalesce(s.expires_at <= clock_timestamp(), false) and not {holder_gone})

-- fragment left
-- What is left of the holder of l in µs, without another heartbeat.
(extract(epoch from least(s.expires_at, l.deadline) - clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint

-- fragment reserved
-- The grant id of the waiter to which lock l promises its next token, if that waiter's session lives, here or on a
-- server before this one: no other may have the lock, or a part of it.
(select h.grant_id from rowlock_ticket h join rowlock_session m on m.id = h.session
  where h.grant_id = l.successor and {unexpired})

-- statement setup
-- $1 schema of the tables  $2 longest time of a statement in ms, at most 60000, as text
select set_config('client_encoding', 'UTF8', false),
       set_config('client_min_messages', 'warning', false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('default_transaction_read_only', 'off', false),
       set_config('array_nulls', 'on', false),
       set_config('synchronous_commit', case when current_setting('synchronous_commit') = 'off' then 'on'
                                             else current_setting('synchronous_commit') end, false),
       set_config('lock_timeout', $2::text, false),
       set_config('statement_timeout', $2::text, false),
       set_config('idle_in_transaction_session_timeout', $2::text, false),
       set_config('search_path', 'pg_catalog, ' || quote_ident($1::text) || ', pg_temp', false)

-- statement server
-- → the identity of this server; NULL: a standby, which grants nothing
select case when not pg_is_in_recovery()
            then (select system_identifier::text from pg_control_system()) || '/' || {timeline} end

-- statement migrations
-- → version, checksum, oldest library
select version, checksum, oldest_library from rowlock_migration order by version

-- statement meet_server
-- $1 this server
update rowlock_token_floor
   set floor = case server_identity when '' then floor else floor + 4294967296 end,
       server_identity = $1::text, raised_at = clock_timestamp()
 where id = 1 and server_identity <> $1::text and $1::text <> ''

-- statement open_session
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address, or 0  $8 secret, or ''
-- $9 network namespace of its mailbox, or NULL  $10 this server
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret, mailbox,
                             server_identity, expires_at, opened_at)
select $1::bigint, $2::text, $3::text, $4::bigint, $5::text, $6::bigint, $7::bigint, $8::text, $9::bigint,
       $10::text, clock_timestamp() + $6::bigint::float8 * interval '1 microsecond', clock_timestamp()
  from rowlock_token_floor f where f.id = 1 and (f.server_identity = $10::text or $10::text = '')

-- statement heartbeat
-- The row is locked first and the clock read afterwards, so that a wait for the row cannot revive a session.
-- $1 session  $2 the revision we know
with locked as materialized (
         select id from rowlock_session where id = $1::bigint for update),
     clock as materialized (
         select id, clock_timestamp() as now from locked)
update rowlock_session m
   set beats = m.beats + 1, expires_at = clock.now + m.ttl_us::float8 * interval '1 microsecond'
  from clock
 where m.id = clock.id and m.revision = $2::bigint and not m.ended and m.expires_at > clock.now and {here}

-- statement session_state
-- $1 session
-- → whether it lives, its revision; no row: it is gone
select {live}::int, m.revision from rowlock_session m where m.id = $1::bigint

-- statement session_leases
-- $1 session
-- → name, grant id, token, µs to its own deadline or NULL, who asks for it or NULL, and why
select l.name, l.grant_id, l.token, (extract(epoch from l.deadline - clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint,
       case when l.asked_for = l.grant_id then l.asked_by end, l.reason
  from rowlock_lock l where l.session = $1::bigint order by l.name

-- statement end_expired_session
-- A transaction of its own: the lease is read after its commit.
-- $1 session
update rowlock_session set ended = true
 where id = $1::bigint and not ended and expires_at <= clock_timestamp()

-- statement end_session
-- $1 my session
update rowlock_session set ended = true where id = $1::bigint and not ended

-- statement probe
-- $1 name  $2 my session
-- → the token of the next grant, whether my session lives, whether the lock has a row, its token, whether it is free,
--   whether it is waited for, its holder, whether that has expired, its remaining time in µs, {parts}
select greatest(coalesce(l.token, 0), f.floor) + 1 + (l.successor is not null)::int,
       (select count(*) from rowlock_session m where m.id = $2::bigint and {live}),
       (l.name is not null)::int, l.token, {free}::int,
       ({reserved} is not null
        or exists (select from rowlock_ticket w join rowlock_session m on m.id = w.session
                    where w.name = $1::text and {waits}))::int,
       l.session, {expired}::int, {left}, {parts}
  from rowlock_token_floor f
       left join rowlock_lock l on l.name = $1::text
       left join rowlock_session s on s.id = l.session
 where f.id = 1

-- statement take
-- Compare-and-set on the probed token.
-- $1 name  $2 session  $3 grant id  $4 thread or NULL  $5 note or NULL  $6 own deadline in µs, or NULL
-- $7 probed token  $8 new token
update rowlock_lock
   set token = $8::bigint, session = $2::bigint, grant_id = $3::bigint, thread = $4::text, note = $5::text,
       acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
       deadline = clock_timestamp() + $6::bigint::float8 * interval '1 microsecond', successor = null
 where name = $1::text and token = $7::bigint
   and exists (select from rowlock_session m where m.id = $2::bigint and {live})

-- statement insert_lease
-- $1 … $6 as take  $7 new token: the floor that was probed + 1
insert into rowlock_lock (name, token, session, grant_id, thread, note, acquired_at, changed_at, deadline)
select $1::text, f.floor + 1, m.id, $3::bigint, $4::text, $5::text, clock_timestamp(), clock_timestamp(),
       clock_timestamp() + $6::bigint::float8 * interval '1 microsecond'
  from rowlock_token_floor f, rowlock_session m
 where f.id = 1 and f.floor + 1 = $7::bigint and m.id = $2::bigint and {live}
on conflict (name) do nothing

-- statement find_grant
-- $1 name  $2 session  $3 grant id
-- → its token, µs to its own deadline or NULL; no row: there is no such grant
select token, (extract(epoch from deadline - clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint
  from rowlock_lock where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement confirm_grant
-- $1 name  $2 my session  $3 grant id
update rowlock_lock set changed_at = clock_timestamp()
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement release
-- $1 name  $2 my session  $3 grant id
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null, deadline = null,
       changed_at = clock_timestamp()
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement enqueue
-- $1 name  $2 my session  $3 grant id  $4 thread or NULL  $5 note or NULL  $6 own deadline in µs, or NULL
-- $7 time limit of your caller in µs, or NULL
insert into rowlock_ticket (name, session, grant_id, thread, note, deadline_us, enqueued_at, waits_until)
values ($1::text, $2::bigint, $3::bigint, $4::text, $5::text, $6::bigint, clock_timestamp(),
        clock_timestamp() + $7::bigint::float8 * interval '1 microsecond')

-- statement entry
-- $1 name  $2 my session  $3 grant id
-- → whether my session lives, my ticket or NULL, whether I am the first, whether the lock is free, its holder,
--   whether that has expired, its remaining time in µs, whether others overlook my entry (reset_watermark), {parts}
select (select count(*) from rowlock_session m where m.id = $2::bigint and {live}),
       mine.ticket,
       (mine.ticket is not null
        and not exists (select from rowlock_ticket w join rowlock_session m on m.id = w.session
                         where w.name = $1::text and w.ticket < mine.ticket and {waits}))::int,
       {free}::int, l.session, {expired}::int, {left}, coalesce(mine.ticket <= l.served - 256, false)::int,
       {parts}
  from (values (1)) as one
       left join rowlock_ticket mine on mine.name = $1::text and mine.session = $2::bigint and mine.grant_id = $3::bigint
       left join rowlock_lock l on l.name = $1::text
       left join rowlock_session s on s.id = l.session

-- statement next_waiter
-- $1 name
-- → the token of a grant to that waiter; whether the lock has a row, its token, whether it is free, its holder and
--   that grant id; the waiter's ticket, session, grant id, thread, note, own deadline in µs, in how many queues its
--   request stands, its wake-up address, secret and mailbox, or NULLs; its weight, NULL: it waits for the whole lock
select greatest(coalesce(l.token, 0), f.floor) + 1 + (coalesce(l.successor, w.grant_id) <> w.grant_id)::int,
       (l.name is not null)::int, l.token, {free}::int, l.session, l.grant_id,
       w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us, w.members,
       w.wake_address, w.wake_secret, w.mailbox, w.weight
  from rowlock_token_floor f
       left join rowlock_lock l on l.name = $1::text
       left join rowlock_session s on s.id = l.session
       left join lateral (
            select w.*, m.wake_address, m.wake_secret, m.mailbox
              from rowlock_ticket w join rowlock_session m on m.id = w.session
             where w.name = $1::text and {waits} and w.grant_id = coalesce({reserved}, w.grant_id)
             order by w.ticket limit 1) w on true
 where f.id = 1

-- statement delete_ticket
-- $1 ticket  $2 name
delete from rowlock_ticket where name = $2::text and ticket = $1::bigint

-- statement restore_lease
-- $1 name
insert into rowlock_lock (name, token, changed_at)
select $1::text, f.floor, clock_timestamp() from rowlock_token_floor f where f.id = 1
on conflict (name) do nothing

-- statement reset_watermark
-- $1 name  $2 ticket
update rowlock_lock set served = $2::bigint where name = $1::text and served > $2::bigint

-- statement fence
-- In your transaction.
-- $1 name  $2 my session  $3 token
-- → a row if it is held; else roll back
select 1 from rowlock_lock l, rowlock_session s
 where l.name = $1::text and l.session = $2::bigint and l.token = $3::bigint and s.id = l.session and not s.ended
   and coalesce(l.deadline > clock_timestamp(), true)
   for share of l

-- statement force_release
-- In one transaction with bump_revision, before it.
-- $1 name  $2 probed token  $3 probed holder
update rowlock_lock
   set token = token + 1, session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
 where name = $1::text and token = $2::bigint and session = $3::bigint

-- statement bump_revision
-- $1 session
update rowlock_session set revision = revision + 1 where id = $1::bigint

-- statement lock_lease
-- In one transaction with bump_revision and shorten_lease, before them.
-- $1 name  $2 token  $3 session
select 1 from rowlock_lock where name = $1::text and token = $2::bigint and session = $3::bigint for update

-- statement shorten_lease
-- $1 name  $2 session  $3 how long from now, in µs  $4 who asks  $5 why, or NULL
update rowlock_lock l
   set deadline = least(l.deadline, greatest(m.expires_at, clock_timestamp() + $3::bigint::float8 * interval '1 microsecond')),
       asked_by = case when not coalesce(l.asked_for = l.grant_id and l.asked_by is null, false) then $4::text end,
       reason = case when not coalesce(l.asked_for = l.grant_id and l.asked_by is null, false) then $5::text end,
       asked_for = l.grant_id
  from rowlock_session m
 where l.name = $1::text and m.id = $2::bigint

-- statement wake_address
-- $1 session
-- → its wake-up address, secret, mailbox and revision
select wake_address, wake_secret, mailbox, revision from rowlock_session where id = $1::bigint

-- statement notify
-- $1 channel  $2 message
select pg_notify($1::text, $2::text)
