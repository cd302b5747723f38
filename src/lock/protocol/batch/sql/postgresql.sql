-- statement reacquire
-- Takes a lease back that this client freed at the token $7, if it is unchanged since: `acquire` without the
-- probe, for a quarter of its cost to the server. No row changed: another client held the lease meanwhile, or
-- a client waits for it, or our session is over; `acquire` finds out.
-- The write waits for the row's lock and then compares the token again: a row that is free at one token is
-- never held at it again, and any promise was made while it was held. Our session and the queue are read from
-- the snapshot, as in `acquire` and with its proof; a dead waiter's ticket counts here as well.
-- The queue is read from its beginning (fragment in_queue), and ORDER BY makes the planner use its key; with
-- EXISTS the planner reads all queues until a row matches, and here usually none does.
-- A token below the floor is left to `acquire`, which goes past it.
-- If the reply is lost, the grant id finds the row again.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 the token it was freed with
update rowlock_lock l
   set token = $7::bigint + 1, session = $2::bigint, grant_id = $3::bigint, thread = $4::text,
       note = $5::text, acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
       deadline = clock_timestamp() + $6::bigint::float8 * interval '1 microsecond'
 where l.name = $1::text and l.token = $7::bigint and l.session is null and l.successor is null
   and (select f.floor from rowlock_token_floor f) <= $7::bigint
   and exists (select from rowlock_session m where m.id = $2::bigint and {live})
   and (select w.ticket from rowlock_ticket w where w.name = $1::text
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null

-- statement reacquire_all
-- `reacquire` for several leases, by one commit. It may wait for a row, but not for a long transaction's and
-- in no cycle: a token is freed by one client alone, so no two batches want a row at the same token; and a
-- row that is free at its token is in no fenced transaction.
-- $1 my session; arrays: $2 names, each once  $3 the tokens they were freed with  $4 grant ids  $5 threads
-- $6 notes  $7 own deadlines in µs
-- → grant id of each that was granted
update rowlock_lock l
   set token = r.known + 1, session = $1::bigint, grant_id = r.grant_id, thread = r.thread,
       note = r.note, acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
       deadline = clock_timestamp() + r.deadline_us::float8 * interval '1 microsecond'
  from unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
       as r (name, known, grant_id, thread, note, deadline_us)
 where l.name = r.name and l.token = r.known and l.session is null and l.successor is null
   and r.known >= (select f.floor from rowlock_token_floor f)
   and exists (select from rowlock_session m where m.id = $1::bigint and {live})
   and (select w.ticket from rowlock_ticket w where w.name = r.name
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null
returning l.grant_id

-- statement acquire_all
-- Grants several locks to one session by one commit: each name that is plainly free (its row freed, or no
-- row yet) and that no client waits for. No token is compared: what is judged are the locked row's own columns, counted
-- holds among them. Send the rest one by one with `acquire`.
-- Waits for no locked row: a row that is locked, perhaps for long by a fenced transaction, is skipped. If a
-- row was free and not locked, k has locked it and judged its newest version; the write after that finds it
-- by its ctid, or not at all if that version is younger than this snapshot: then it is left to `acquire` too.
-- Our session and the queues are read from the snapshot, as in `acquire`.
-- A queue is read from its beginning (fragment in_queue), and by its key: with EXISTS the planner assumes that
-- any row will do to begin with, and reads all queues. CASE: only for names without a row is the queue read
-- from the front.
-- New rows are inserted in name order, so that two clients wait for each other's in one direction only, and
-- for no longer than the other's commit.
-- If the reply is lost, the grant ids find the rows again.
-- $1 my session; arrays: $2 names, each once  $3 grant ids  $4 threads  $5 notes  $6 own deadlines in µs
-- → grant id, token of each that was granted
with r as materialized (
         select * from unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::bigint[])
                       as r (name, grant_id, thread, note, deadline_us)),
     mine as materialized (
         select m.id, (select f.floor from rowlock_token_floor f) as floor
           from rowlock_session m where m.id = $1::bigint and {live}),
     k as materialized (
         select r.*, l.place
           from mine, r cross join lateral (
                select l.ctid as place from rowlock_lock l
                 where l.name = r.name and l.session is null and l.used = 0 and l.capacity is null and l.successor is null
                   and (select w.ticket from rowlock_ticket w
                         where w.name = r.name and w.ticket > coalesce(l.served, 0) - 256
                         order by w.ticket limit 1) is null
                   for no key update skip locked) l),
     u as (
         update rowlock_lock l
            set token = greatest(l.token, mine.floor) + 1, session = mine.id,
                grant_id = k.grant_id, thread = k.thread, note = k.note,
                acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
                deadline = clock_timestamp() + k.deadline_us::float8 * interval '1 microsecond'
           from k, mine
          where l.ctid = k.place
         returning l.grant_id, l.token),
     i as (
         insert into rowlock_lock as l (name, token, session, grant_id, thread, note, acquired_at,
                                         changed_at, deadline)
         select r.name, mine.floor + 1, mine.id, r.grant_id, r.thread, r.note, clock_timestamp(),
                clock_timestamp(), clock_timestamp() + r.deadline_us::float8 * interval '1 microsecond'
           from mine, r
          where case when exists (select from rowlock_lock l where l.name = r.name offset 0) then false
                     else (select w.ticket from rowlock_ticket w where w.name = r.name
                            order by w.ticket limit 1) is null end
          order by r.name
         on conflict (name) do nothing
         returning l.grant_id, l.token)
select u.grant_id, u.token from u union all select i.grant_id, i.token from i

-- statement probe_held
-- `probe_all` for one name.
-- $1 name
-- → a row if it is held
select 1
  from rowlock_lock l join rowlock_session m on m.id = l.session
 where l.name = $1::text and {live} and (l.deadline is null or l.deadline > clock_timestamp())

-- statement probe_all
-- Returns which of these names are certainly held by a live session now, for tries that would fail: reads a
-- snapshot, locks and writes nothing. In all other cases `acquire` finds out.
-- $1 names
-- → the names that are held
select r.name
  from pg_catalog.unnest($1::text[]) as r (name) cross join lateral (
       select from rowlock_lock l join rowlock_session m on m.id = l.session
        where l.name = r.name and {live} and (l.deadline is null or l.deadline > clock_timestamp())
       offset 0) l

-- statement release_all
-- Frees several leases of one session by one commit: those that are still these very grants and have no
-- waiter, alive or dead. Send the rest one by one with `hand_over`. Waits for rows, but not long: only grants
-- that were never fenced are sent here, so no fenced transaction has locked their rows. Otherwise like
-- `release_unwaited`.
-- $1 my session  $2 names, each once  $3 their grant ids  $4 1 = may commit asynchronously, see `release`
-- → grant id of each that was freed
update rowlock_lock l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
  from unnest($2::text[], $3::bigint[]) as r (name, grant_id)
 where l.name = r.name and l.session = $1::bigint and l.grant_id = r.grant_id
   and (select w.ticket from rowlock_ticket w where w.name = r.name
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null
   and ($4::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
returning r.grant_id
