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
