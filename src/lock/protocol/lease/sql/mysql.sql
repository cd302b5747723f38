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

-- statement confirm_lease
-- Makes a lease's state as read durable, whichever client wrote it, by a later commit of our own. MySQL
-- counts changed rows, so the row must change. No row changed: the lease is no longer at that token.
-- $1 name  $2 the token that was read
update rowlock_lock set changed_at = greatest({now}, changed_at + 1)
 where name = $1 and token = $2

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
