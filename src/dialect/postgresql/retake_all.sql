-- retake.sql for several leases, by one commit. It may wait for a row, but for no long one's and in no circle:
-- a token is freed by one client alone, so no two groups want a row at the same token; and a row that is
-- free at its token is in nobody's fenced transaction.
-- $1 my session; arrays: $2 names, each once  $3 the tokens they were freed with  $4 grant ids  $5 threads
-- $6 notes  $7 own deadlines in µs
-- → grant id of each that was granted
update rowlock_lease l
   set token = r.known + 1, session = $1::bigint, grant_id = r.grant_id, thread = r.thread,
       note = r.note, acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
       deadline = clock_timestamp() + r.deadline_us::float8 * interval '1 microsecond'
  from unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
       as r (name, known, grant_id, thread, note, deadline_us)
 where l.name = r.name and l.token = r.known and l.session is null and l.successor is null
   and r.known >= (select f.floor from rowlock_token_floor f)
   and exists (select from rowlock_session m where m.id = $1::bigint and {live})
   and (select w.ticket from rowlock_waiter w where w.name = r.name
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null
returning l.grant_id
