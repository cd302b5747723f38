-- statement take
-- Grants a free lease whose row exists: compare-and-set on the probed token. Every grant changes the token,
-- and a row that is free at one token is never held at it again, so a stale probe fails and never steals. One
-- row changed: granted, and the token is known. Grants to our own session or, together with the deletion of a
-- ticket, to a waiter.
-- The preceding probe found no waiter. A ticket committed between the two is overtaken: its enqueue and our
-- acquire overlapped, and either order is right.
-- The session that receives the lease must live here: one seen a while ago may be gone (fragment live).
-- $1 name  $2 session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 probed token  $8 new token
update rowlock_lock
   set token = $8, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement insert_lease
-- Grants a lease whose row does not exist. The token is computed here, not taken from the probe: between the
-- two a stopped client may sleep longer than the reaper's grace. If the floor has moved since the probe,
-- nothing is inserted; if another client inserted first, the name is taken (1062): probe again.
-- Our session must live here (fragment live).
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 new token: the probed floor + 1
insert into rowlock_lock (name, token, session, grant_id, thread, note,
                           acquired_at, changed_at, deadline)
select $1, f.floor + 1, $2, $3, $4, $5, {now}, {now}, {now} + $6
  from rowlock_token_floor f where f.id = 1 and f.floor + 1 = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement probe
-- Probes a lease: reads only, locks nothing, writes nothing. An acquire begins with one, unless
-- it reacquires.
-- $1 name  $2 my session
-- → the token a grant would carry, whether my session lives, {probe}
select greatest(coalesce(l.token, 0), f.floor) + 1,
       (select count(*) from rowlock_session m where m.id = $2 and {live}),
       {probe}
  from rowlock_token_floor f
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session
 where f.id = 1

-- statement confirm_grant
-- Makes a grant that was found again durable by a later commit of our own. MySQL counts changed rows, so the
-- new time must differ from the old.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock set changed_at = greatest({now}, changed_at + 1)
 where name = $1 and session = $2 and grant_id = $3

-- statement confirm_lease
-- Makes a lease's state as read durable, whichever client wrote it, by a later commit of our own. MySQL
-- counts changed rows, so the row must change. No row changed: the lease is no longer at that token.
-- $1 name  $2 the token that was read
update rowlock_lock set changed_at = greatest({now}, changed_at + 1)
 where name = $1 and token = $2

-- statement lock_lease
-- Locks a lease's row for the transaction, if it is still this grant. Lease first, then session
-- (docs/adr/0010).
-- $1 name  $2 token  $3 session
{bounded_select} 1 from rowlock_lock where name = $1 and token = $2 and session = $3 for update

-- statement shorten_lease
-- Sets a lease's deadline to the time at which its session would expire without another heartbeat, or to so long from
-- now, whichever is later, unless the lease ends before that. Never later than it was: a lease that was judged free stays free.
-- The transaction has locked the lease's row, and then the session's by bump_revision. A heartbeat either came before
-- that, and its expires_at is read here, or is refused until its client knows the new revision, which the client adopts
-- only after it has read this deadline.
-- After a request without a time (asked_by null) a later one with a time changes nothing.
-- $1 name  $2 session  $3 how long from now, in µs  $4 who asks, or NULL: the holder gives it up at once  $5 why; of a request at once, who and why
update rowlock_lock l straight_join rowlock_session m
   set l.deadline = least(coalesce(l.deadline, greatest(m.expires_at, {now} + $3)), greatest(m.expires_at, {now} + $3)),
       l.reason = case when $4 is null or not coalesce(l.asked_for = l.grant_id and l.asked_by is null, 0)
                       then $5 else l.reason end,
       l.asked_by = case when not coalesce(l.asked_for = l.grant_id and l.asked_by is null, 0) then $4 end,
       l.asked_for = l.grant_id
 where l.name = $1 and m.id = $2

-- statement reclaim_lease
-- Moves a lease of a predecessor, ended in this transaction, to our session by compare-and-set on the row's
-- own columns; the grant id stays. Our session must live here (fragment live).
-- The next token is skipped. The row may be what a server crash has left: a commit that other clients have
-- seen and the disk has not may have handed the lease over, and a client may have received that token.
-- $1 name  $2 my session  $3 the predecessor's session  $4 its token
update rowlock_lock
   set session = $2, thread = null,
       token = greatest(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 2,
       acquired_at = {now}, changed_at = {now}
 where name = $1 and session = $3 and token = $4 and not coalesce(deadline <= {now}, 0)
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement adopt_lease
-- Moves a lease that its holder offers to our session, as another grant, by compare-and-set on the row's own columns. The
-- deadline, the note and the time of the acquisition stay, and a request for the release is one for the new grant; not a
-- lease that was asked for at once. The transaction has locked the row, and the session of the giver, which lives. Our
-- session must live here.
-- The next token is skipped, as by reclaim_lease. Assignments are evaluated from left to right.
-- $1 name  $2 my session  $3 the giver's session  $4 its token  $5 its grant id  $6 my grant id
update rowlock_lock
   set session = $2, asked_for = case when asked_for = grant_id then $6 end, grant_id = $6, thread = null,
       token = greatest(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 2, changed_at = {now}
 where name = $1 and session = $3 and token = $4 and grant_id = $5 and not coalesce(deadline <= {now}, 0)
   and not coalesce(asked_for = grant_id and asked_by is null, 0)
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement renew_lease
-- Sets the deadline of a lease to so long from now, with a new token. A waiter that judged the lease over by its old
-- deadline takes it by compare-and-set on the old token: were the token the same, it would take a lease that lives. The
-- transaction has locked the row, and then its session, which is to live longer than this deadline.
-- The next token is skipped, as by reclaim_lease.
-- $1 name  $2 session  $3 token  $4 how long from now, in µs
update rowlock_lock
   set token = greatest(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 2,
       deadline = {now} + $4, changed_at = {now}
 where name = $1 and session = $2 and token = $3 and deadline > {now}

-- statement inspect
-- Shows one name to an operator. No row for a semaphore, for a lock that has counted holds, or for a name without a row;
-- of the last, one if a live client waits for all of it (a waiter for a lock that was reaped recreates the row).
-- $1 name
select {info}
  from (select cast($1 as binary) as name) n
       left join rowlock_lock l on l.name = n.name
       left join rowlock_session s on s.id = l.session
 where coalesce(l.capacity is null and l.used = 0,
                exists (select 1 from rowlock_ticket w {join} rowlock_session m
                         where w.name = $1 and w.weight is null and m.id = w.session and {live}))

-- statement restore_lease
-- Recreates the row of a lease that has waiters, as free, if the reaper has deleted it: compare-and-set needs
-- a row. Its token is the floor, which no grant goes below. If the row exists by now: 1062.
-- $1 name
insert into rowlock_lock (name, token, changed_at)
select $1, o.floor, {now} from rowlock_token_floor o where o.id = 1

-- statement retain
-- Keeps a grant for its client beyond the release of its thread, in the place of `release` (docs/adr/0055):
-- compare-and-set on the row's own columns. No row changed: the lease is not this grant any more, another client asks
-- for its release (it has a deadline), or waits for it; the caller then releases it.
-- All tokens up to the row's are this grant's from then on, by this commit, which is as durable as a grant's: the next
-- grant goes beyond them, and a prober that judged the row at the old token loses its compare-and-set.
-- A ticket that is committed after this snapshot is not seen. Its client sees `retained` and recalls the lease, or waits
-- until the client gives it back.
-- thread: a search for deadlocks leaves it out, as any of the client's threads may hold the lease, or none.
-- A repetition after a lost reply changes no row: the token has risen.
-- Not after withdraw_retention: the client was asked through the row.
-- $1 name  $2 my session  $3 grant id  $4 the row's token  $5 the last token of the new block
-- The subqueries lock nothing: see reacquire.
update rowlock_lock
   set token = $5, retained = grant_id, thread = null, note = null, acquired_at = {now}, changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3 and token = $4 and deadline is null
   and coalesce(retained <> - grant_id, 1)
   and (select f.floor from rowlock_session m straight_join rowlock_token_floor f
         where m.id = $2 and {live} and f.id = 1) <= $4
   and coalesce(exists (select 1 from rowlock_ticket w where w.name = $1), 1) = 0
