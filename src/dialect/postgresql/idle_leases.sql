-- How many rows are idle past the retention above the settled floor, and their greatest token, one that
-- is promised included.
-- $1 retention in µs
select count(*), coalesce(max(l.token + (l.successor is not null)::int), 0)
  from rowlock_lease l, rowlock_token_floor f
 where f.id = 1 and l.session is null and l.token + (l.successor is not null)::int > f.settled
   and l.changed_at <= clock_timestamp() - $1::bigint * interval '1 microsecond'
   and not exists (select from rowlock_waiter w where w.name = l.name)
