-- The statements of docs/protocol.md that MySQL, MariaDB and SQLite share; in the form of postgresql.sql. A statement of
-- mysql.sql or sqlite.sql goes before one of the same name here.

-- fragment epoch
-- A time that has passed, for the transcripts.
0

-- fragment holder_gone
-- Whether lock l, left-joined to the session s of its holder, has no holder, or one that has ended.
(l.session is null or s.id is null or s.ended = 1 or coalesce(l.deadline <= {now}, 0))

-- fragment free
-- Whether lock l may be granted as a lease: nobody holds it or a part of it, and it is no semaphore.
({holder_gone} and coalesce(l.used = 0 and l.capacity is null, 1))

-- fragment parts
-- 1 = parts of lock l are held, 2 = it is a semaphore, 0 = neither.
case when l.capacity is not null then 2 else coalesce(l.used, 0) <> 0 end

-- fragment waits
-- Whether entry w of session m can be served: its session lives, its caller's time limit has not passed, and if it is an
-- upgrade the hold that it upgrades lives.
({live} and coalesce(w.waits_until > {now}, 1)
 and (w.base is null
      or exists (select 1 from rowlock_hold b
                  where b.name = w.name and b.grant_id = w.base and b.session = w.session
                    and not coalesce(b.deadline <= {now}, 0))))

-- fragment expired
-- Whether s holds the lock l, has expired, and is not ended: to be ended before the lock is free.
(coalesce(s.expires_at <= {now}, 0) and not {holder_gone})

-- fragment left
-- What is left of the holder of l in µs, without another heartbeat.
coalesce({least}(s.expires_at, l.deadline), s.expires_at) - {now}

-- statement migrations
-- → version, checksum, oldest library
select version, checksum, oldest_library from rowlock_migration order by version

-- statement open_session
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs  $7 wake-up address, or 0  $8 secret, or ''
-- $9 network namespace of its mailbox, or NULL  $10 this server; '' on SQLite
insert into rowlock_session (id, owner, host, pid, program, ttl_us, wake_address, wake_secret, mailbox,
                             server_identity, expires_at, opened_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {now} + $6, {now}
  from rowlock_token_floor f where f.id = 1 and (f.server_identity = $10 or length($10) = 0)

-- statement session_state
-- $1 session
-- → whether it lives, its revision; no row: it is gone
select {live}, m.revision from rowlock_session m where m.id = $1

-- statement session_leases
-- $1 session
-- → name, grant id, token, µs to its own deadline or NULL, who asks for it or NULL, and why
select l.name, l.grant_id, l.token, l.deadline - {now},
       case when l.asked_for = l.grant_id then l.asked_by end, l.reason
  from rowlock_lock l where l.session = $1 order by l.name

-- statement end_expired_session
-- A transaction of its own: the lease is read after its commit.
-- $1 session
update rowlock_session set ended = 1 where id = $1 and ended = 0 and expires_at <= {now}

-- statement end_session
-- $1 my session
update rowlock_session set ended = 1 where id = $1 and ended = 0

-- statement probe
-- $1 name  $2 my session
-- → the token of the next grant, whether my session lives, whether the lock has a row, its token, whether it is free,
--   whether it is waited for, its holder, whether that has expired, its remaining time in µs, {parts}
select {greatest}(coalesce(l.token, 0), f.floor) + 1,
       (select count(*) from rowlock_session m where m.id = $2 and {live}),
       l.name is not null, l.token, {free},
       exists (select 1 from rowlock_ticket w {join} rowlock_session m
                where w.name = $1 and m.id = w.session and {waits}),
       l.session, {expired}, {left}, {parts}
  from rowlock_token_floor f
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session
 where f.id = 1

-- statement take
-- Compare-and-set on the probed token.
-- $1 name  $2 session  $3 grant id  $4 thread or NULL  $5 note or NULL  $6 own deadline in µs, or NULL
-- $7 probed token  $8 new token
update rowlock_lock
   set token = $8, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement insert_lease
-- $1 … $6 as take  $7 new token: the floor that was probed + 1. The name is taken (MySQL: 1062): probe again.
insert into rowlock_lock (name, token, session, grant_id, thread, note, acquired_at, changed_at, deadline)
select $1, f.floor + 1, $2, $3, $4, $5, {now}, {now}, {now} + $6
  from rowlock_token_floor f
 where f.id = 1 and f.floor + 1 = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement find_grant
-- $1 name  $2 session  $3 grant id
-- → its token, µs to its own deadline or NULL; no row: there is no such grant
select token, deadline - {now} from rowlock_lock where name = $1 and session = $2 and grant_id = $3

-- statement confirm_grant
-- The row must change: MySQL commits nothing else.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock set changed_at = {greatest}({now}, changed_at + 1)
 where name = $1 and session = $2 and grant_id = $3

-- statement release
-- $1 name  $2 my session  $3 grant id
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null, deadline = null,
       changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3

-- statement enqueue
-- $1 name  $2 my session  $3 grant id  $4 thread or NULL  $5 note or NULL  $6 own deadline in µs, or NULL
-- $7 time limit of your caller in µs, or NULL
insert into rowlock_ticket (name, session, grant_id, thread, note, deadline_us, enqueued_at, waits_until)
values ($1, $2, $3, $4, $5, $6, {now}, {now} + $7)

-- statement entry
-- $1 name  $2 my session  $3 grant id
-- → whether my session lives, my ticket or NULL, whether I am the first, whether the lock is free, its holder,
--   whether that has expired, its remaining time in µs, 0, {parts}
select (select count(*) from rowlock_session m where m.id = $2 and {live}),
       mine.ticket,
       mine.ticket is not null
       and not exists (select 1 from rowlock_ticket w {join} rowlock_session m
                        where w.name = $1 and w.ticket < mine.ticket and m.id = w.session and {waits}),
       {free}, l.session, {expired}, {left}, 0, {parts}
  from (select 1 as one) as one
       left join rowlock_ticket mine on mine.name = $1 and mine.session = $2 and mine.grant_id = $3
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session

-- statement next_waiter
-- $1 name
-- → the token of a grant to that waiter; whether the lock has a row, its token, whether it is free, its holder and
--   that grant id; the waiter's ticket, session, grant id, thread, note, own deadline in µs, in how many queues its
--   request stands, its wake-up address, secret and mailbox, or NULLs; its weight, NULL: it waits for the whole lock
select {greatest}(coalesce(l.token, 0), f.floor) + 1,
       l.name is not null, l.token, {free}, l.session, l.grant_id,
       w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us, w.members,
       w.wake_address, w.wake_secret, w.mailbox, w.weight
  from rowlock_token_floor f
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session
       left join (select w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us, w.members, w.weight,
                         m.wake_address, m.wake_secret, m.mailbox
                    from rowlock_ticket w {join} rowlock_session m
                   where w.name = $1 and m.id = w.session and {waits}
                   order by w.ticket limit 1) w on 1 = 1
 where f.id = 1

-- statement delete_ticket
-- By primary key alone: on MySQL another key would deadlock with enqueuers.
-- $1 ticket  $2 name, which is part of the key on PostgreSQL
delete from rowlock_ticket where ticket = $1 and $2 is not null

-- statement restore_lease
-- The name is taken (MySQL: 1062): read again.
-- $1 name
insert into rowlock_lock (name, token, changed_at)
select $1, f.floor, {now} from rowlock_token_floor f where f.id = 1

-- statement force_release
-- In one transaction with bump_revision, before it.
-- $1 name  $2 probed token  $3 probed holder
update rowlock_lock
   set token = token + 1, session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1 and token = $2 and session = $3

-- statement bump_revision
-- $1 session
update rowlock_session set revision = revision + 1 where id = $1

-- statement wake_address
-- $1 session
-- → its wake-up address, secret, mailbox and revision
select wake_address, wake_secret, mailbox, revision from rowlock_session where id = $1
