-- statement reacquire
-- MariaDB only. Takes a lease again that this client has released, in one round trip where acquire needs a
-- probe and a write. One row changed if it was granted; the new token is the known one + 1.
--
-- Compare-and-set, like take, and what it compares is in the row that it locks: the lease is free because its
-- session is NULL in the row's latest version, not in a snapshot. Every grant changes the token, so a row
-- that is free at the known token has had no holder since. The subqueries read a snapshot not older than
-- this statement, as a preceding probe would: our session may end after it (the row then names an ended
-- session, and is free); a ticket that is committed after it overlaps with us, and either order is right;
-- a floor that is raised after it deletes nothing before it settles.
-- At READ COMMITTED the subqueries of a single-table UPDATE lock nothing: no heartbeat waits. (EXISTS is
-- wrapped in COALESCE, or an optimizer may turn it into a join, which locks what it reads.)
--
-- Any ticket prevents the grant, even that of a dead waiter, which acquire would tell apart.
--
-- It must not wait for the row: another client's fenced transaction may hold it for long, and a probe would
-- have reported at once that the lease is held. So the lock wait is 0, in this statement alone; 1205 means
-- the same as no row changed. MySQL supports neither: there acquire probes first.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 the token it was released at
-- $8 the number of our session's server, or '' if any server will do: what fragment here asks, by a parameter. The
-- server prepares subqueries anew with each execution, and that fragment, with one of its own, took a seventh of the time
-- of a pair.
set statement innodb_lock_wait_timeout = 0 for
update rowlock_lock
   set token = token + 1, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7 and session is null
   and ($8 = '' or cast(@@global.server_id as char) = $8)
   and (select f.floor from rowlock_session m straight_join rowlock_token_floor f
         where m.id = $2 and m.ended = 0 and m.expires_at > {now} and f.id = 1) <= $7
   and coalesce(exists (select 1 from rowlock_ticket w where w.name = $1), 1) = 0

-- statement probe_all
-- Probes several leases in one snapshot: reads only, locks nothing, writes nothing. A name without a row does
-- not come back: names_with_waiters reports whether it has waiters.
-- $1 my session  $2 … $17 names; may repeat
-- → the floor, whether my session lives, name, token, whether it may be granted, its grant id, its
--   session, whether that has expired, its time left in µs, whether it has a waiter; 1 = counted holds are in
--   the way, 2 = it is a semaphore. One row with NULLs if no name has a row.
select f.floor,
       (select count(*) from rowlock_session m where m.id = $1 and {live}),
       l.name, l.token, {free}, l.grant_id, l.session,
       coalesce(s.expires_at <= {now}, 0) and not {holder_gone},
       {until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))},
       case when {free} then {waited_here} else 0 end,
       case when l.capacity is not null then 2 else coalesce(l.used, 0) <> 0 end
  from rowlock_token_floor f
       left join rowlock_lock l force index (primary)
              on l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
       left join rowlock_session s on s.id = l.session
 where f.id = 1

-- statement release_all
-- MariaDB only. Frees those of several grants that have no visible waiter, by one statement and one commit. A
-- ticket committed after the snapshot is looked for afterwards, as after every release here. It waits for no
-- row (our own fenced transaction may have locked one): in that case all is undone (1205).
-- $1 session  $2 … $17 names  $18 … $33 grant ids; both may repeat
set statement innodb_lock_wait_timeout = 0 for
{release_all}

-- statement take_all
-- MariaDB only. Grants leases that a probe (probe_all) found free, by one statement and one commit. A row
-- that was changed since does not match; if fewer rows were changed than asked for, served_of reports which.
-- The argument is take's, for each row by itself: the token is compared in the row's latest version, under
-- its lock, and every grant changes it.
--
-- It waits for no row: if another client has locked one of them, all is undone (1205), and lock_all finds
-- those that are not locked.
-- $1 session  $2 the floor that was seen  $3 … $18 names  $19 … $34 their probed tokens
-- $35 … $50 grant ids  $51 … $66 threads  $67 … $82 notes  $83 … $98 own deadlines in µs, or NULL
-- Lists shorter than sixteen repeat the first.
set statement innodb_lock_wait_timeout = 0 for
{take_all}

-- statement insert_all
-- MariaDB only. Grants leases whose rows do not exist, by one statement and one commit: all or none. None if
-- the floor has moved since the probe or our session is over (no row changed), if one of the names exists by
-- now (1062), or if another client is just inserting one (1205: it does not wait). The token is computed
-- here, as in insert_lease.
-- $1 session  $2 the floor that was seen  $3 how many  $4 … $19 names  $20 … $35 grant ids
-- $36 … $51 threads  $52 … $67 notes  $68 … $83 own deadlines in µs, or NULL
set statement innodb_lock_wait_timeout = 0 for
insert into rowlock_lock (name, token, session, grant_id, thread, note,
                           acquired_at, changed_at, deadline)
select elt(n.slot, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19),
       f.floor + 1, $1,
       elt(n.slot, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35),
       elt(n.slot, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51),
       elt(n.slot, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67),
       {now}, {now},
       {now} + cast(elt(n.slot, $68, $69, $70, $71, $72, $73, $74, $75, $76, $77, $78, $79,
                                  $80, $81, $82, $83) as signed)
  from rowlock_token_floor f
       join (select 1 as slot union all select 2 union all select 3 union all select 4
             union all select 5 union all select 6 union all select 7 union all select 8
             union all select 9 union all select 10 union all select 11 union all select 12
             union all select 13 union all select 14 union all select 15 union all select 16) n
         on n.slot <= $3
 where f.id = 1 and f.floor = $2
   and (select 1 from rowlock_session m where m.id = $1 and {live}) = 1

-- statement lock_all
-- Locks those rows of leases that no other client has locked: it never waits, so it cannot be in a deadlock.
-- Used in a short transaction, before the rows are written: see take_locked and release_locked. MySQL 8,
-- MariaDB 10.6.
-- $1 … $16 names; may repeat
-- → name, token, session, grant id
select l.name, l.token, l.session, l.grant_id
  from rowlock_lock l force index (primary)
 where l.name in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
   for update skip locked

-- statement take_locked
-- Grants leases whose rows this transaction has locked (lock_all), so it waits for nothing: only those whose
-- token under that lock is the one that an earlier probe found free.
-- $1 … $98 as take_all
{take_all}

-- statement release_locked
-- Frees grants whose rows this transaction has locked (lock_all), so it waits for nothing.
-- $1 … $33 as release_all
{release_all}
