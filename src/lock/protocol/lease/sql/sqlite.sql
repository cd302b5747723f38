-- statement acquire
-- Grants a lease if it is free and our session lives; returns a row if and only if it was granted.
-- A writing statement has the file to itself, so its subqueries see the current state. If the lease is
-- held, no page changes. If the reply is lost, the grant id finds the row again.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 1 = also past live waiters
insert into rowlock_lock as l (name, token, session, grant_id, thread, note,
                                acquired_at, changed_at, deadline)
select $1, f.floor + 1, m.id, $3, $4, $5, {now}, {now}, {now} + $6
  from rowlock_session m, rowlock_token_floor f
 where m.id = $2 and {live} and ($7 = 1 or not {waited})
on conflict (name) do update
   set token = max(l.token, excluded.token - 1) + 1, session = excluded.session,
       grant_id = excluded.grant_id, thread = excluded.thread, note = excluded.note,
       acquired_at = excluded.acquired_at, changed_at = excluded.changed_at,
       deadline = excluded.deadline
 where l.used = 0 and l.capacity is null
   and (l.session is null
        or not exists (select 1 from rowlock_session s where s.id = l.session and s.ended = 0)
        or coalesce(l.deadline <= {now}, 0))
returning token

-- statement take
-- Grants a lease to a waiter: compare-and-set on the probed token, in one transaction with the deletion of
-- the ticket. The waiter's session must live: one seen a while ago may be gone. Every grant changes the
-- token, so a stale probe fails.
-- $1 name  $2 its session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 probed token  $8 new token
update rowlock_lock
   set token = $8, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7
   and exists (select 1 from rowlock_session m where m.id = $2 and {live})

-- statement probe
-- The light probe of waiters: reads only, writes nothing, does not wait for a writer.
-- $1 name  $2 my session
-- → NULL, whether my session lives, {probe}
select null, (select count(*) from rowlock_session m where m.id = $2 and {live}), {probe}
  from (select 1) as one
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session

-- statement confirm_grant
-- Makes a grant that was found again durable by a later commit of our own. Changes the row, so that there is
-- something to commit.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock set changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3

-- statement lock_lease
-- Whether a lease is still this grant. The transaction has the file's write lock from its beginning.
-- $1 name  $2 token  $3 session
select 1 from rowlock_lock where name = $1 and token = $2 and session = $3

-- statement shorten_lease
-- Sets a lease's deadline to the time at which its session would expire without another heartbeat, or to so long from
-- now, whichever is later, unless the lease ends before that. Never later than it was: a lease that was judged free stays free.
-- The transaction has locked the lease's row, and then the session's by bump_revision. A heartbeat either came before
-- that, and its expires_at is read here, or is refused until its client knows the new revision, which the client adopts
-- only after it has read this deadline.
-- After a request without a time (asked_by null) a later one with a time changes nothing.
-- $1 name  $2 session  $3 how long from now, in µs  $4 who asks, or NULL: the holder gives it up at once  $5 why; of a request at once, who and why
update rowlock_lock
   set deadline = (select min(coalesce(rowlock_lock.deadline, max(m.expires_at, {now} + $3)), max(m.expires_at, {now} + $3))
                     from rowlock_session m where m.id = $2),
       asked_by = case when not coalesce(asked_for = grant_id and asked_by is null, 0) then $4 end,
       reason = case when $4 is null or not coalesce(asked_for = grant_id and asked_by is null, 0) then $5 else reason end,
       asked_for = grant_id
 where name = $1 and exists (select 1 from rowlock_session m where m.id = $2)

-- statement reclaim_lease
-- Moves a lease of a predecessor, ended in this transaction, to our session by compare-and-set on the row's
-- own columns; the grant id stays. Our session must live.
-- $1 name  $2 my session  $3 the predecessor's session  $4 its token
update rowlock_lock
   set session = $2, thread = null,
       token = max(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1,
       acquired_at = {now}, changed_at = {now}
 where name = $1 and session = $3 and token = $4 and not coalesce(deadline <= {now}, 0)
   and exists (select 1 from rowlock_session m where m.id = $2 and {live})

-- statement adopt_lease
-- Moves a lease that its holder offers to our session, as another grant, by compare-and-set on the row's own columns. The
-- deadline, the note and the time of the acquisition stay, and a request for the release is one for the new grant; not a
-- lease that was asked for at once. The transaction has locked the row, and the session of the giver, which lives. Our
-- session must live here.
-- $1 name  $2 my session  $3 the giver's session  $4 its token  $5 its grant id  $6 my grant id
update rowlock_lock
   set session = $2, asked_for = case when asked_for = grant_id then $6 end, grant_id = $6, thread = null,
       token = max(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1, changed_at = {now}
 where name = $1 and session = $3 and token = $4 and grant_id = $5 and not coalesce(deadline <= {now}, 0)
   and not coalesce(asked_for = grant_id and asked_by is null, 0)
   and exists (select 1 from rowlock_session m where m.id = $2 and {live})

-- statement renew_lease
-- Sets the deadline of a lease to so long from now, with a new token. A waiter that judged the lease over by its old
-- deadline takes it by compare-and-set on the old token: were the token the same, it would take a lease that lives. The
-- transaction has locked the row, and then its session, which is to live longer than this deadline.
-- $1 name  $2 session  $3 token  $4 how long from now, in µs
update rowlock_lock
   set token = max(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1,
       deadline = {now} + $4, changed_at = {now}
 where name = $1 and session = $2 and token = $3 and deadline > {now}

-- statement inspect
-- Shows one name to an operator. No row for a semaphore, for a lock that has counted holds, or for a name without a row;
-- of the last, one if a live client waits for all of it (a waiter for a lock that was reaped recreates the row).
-- $1 name
select {info}
  from (select $1 as name) n
       left join rowlock_lock l on l.name = n.name
       left join rowlock_session s on s.id = l.session
 where coalesce(l.capacity is null and l.used = 0,
                exists (select 1 from rowlock_ticket w {join} rowlock_session m
                         where w.name = $1 and w.weight is null and m.id = w.session and {live}))

-- statement restore_lease
-- Recreates the row of a lease that has waiters, as free, if the reaper has deleted it: compare-and-set needs
-- a row. Its token is the floor, which no grant goes below.
-- $1 name
insert into rowlock_lock (name, token, changed_at)
select $1, o.floor, {now} from rowlock_token_floor o where o.id = 1
on conflict (name) do nothing

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
-- acquired_at changes in any case, although this clock has milliseconds: by that the history knows a retained lease from a row
-- that was changed by hand.
update rowlock_lock
   set token = $5, retained = grant_id, thread = null, note = null, acquired_at = max({now}, acquired_at + 1),
       changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3 and token = $4 and deadline is null
   and coalesce(retained <> - grant_id, 1)
   and exists (select 1 from rowlock_token_floor f where f.id = 1 and f.floor <= $4)
   and exists (select 1 from rowlock_session m where m.id = $2 and {live})
   and not exists (select 1 from rowlock_ticket w where w.name = $1)
