-- Grants several leases to one session by one commit. Of each name that is plainly free (its row freed, or no
-- row yet) and that nobody waits for; acquire.sql is what to send for the rest, one by one.
-- Waits for nobody: a row that is locked, perhaps for long by a fenced transaction, is skipped. Where it
-- was free and is not locked, k has locked it and judged its newest version; the write after that finds
-- it by its place, or not at all if that version is younger than this snapshot: then it is left to
-- acquire.sql too. Our session and the queues are of the snapshot, as in acquire.sql.
-- A queue is looked at where it begins (fragment in_line), and by its key: of EXISTS the planner thinks
-- that any place will do to begin with, and reads all queues. CASE: only of names that have no row is it
-- looked through from the front.
-- Rows that are new are inserted in the order of their names, so that two of us wait for each other's in
-- one direction only, and for no longer than the other's commit.
-- If the reply is lost: the grant ids find the rows again.
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
                select l.ctid as place from rowlock_lease l
                 where l.name = r.name and l.session is null and l.successor is null
                   and (select w.ticket from rowlock_waiter w
                         where w.name = r.name and w.ticket > coalesce(l.served, 0) - 256
                         order by w.ticket limit 1) is null
                   for no key update skip locked) l),
     u as (
         update rowlock_lease l
            set token = greatest(l.token, mine.floor) + 1, session = mine.id,
                grant_id = k.grant_id, thread = k.thread, note = k.note,
                acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
                deadline = clock_timestamp() + k.deadline_us::float8 * interval '1 microsecond'
           from k, mine
          where l.ctid = k.place
         returning l.grant_id, l.token),
     i as (
         insert into rowlock_lease as l (name, token, session, grant_id, thread, note, acquired_at,
                                         changed_at, deadline)
         select r.name, mine.floor + 1, mine.id, r.grant_id, r.thread, r.note, clock_timestamp(),
                clock_timestamp(), clock_timestamp() + r.deadline_us::float8 * interval '1 microsecond'
           from mine, r
          where case when exists (select from rowlock_lease l where l.name = r.name offset 0) then false
                     else (select w.ticket from rowlock_waiter w where w.name = r.name
                            order by w.ticket limit 1) is null end
          order by r.name
         on conflict (name) do nothing
         returning l.grant_id, l.token)
select u.grant_id, u.token from u union all select i.grant_id, i.token from i
