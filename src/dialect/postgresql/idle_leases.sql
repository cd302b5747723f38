-- How many rows are idle past the retention above the settled floor, in some pages, and their greatest
-- token, one that is promised included. A row that changes while the reaper goes from page to page is
-- counted twice or not at all: the floor may be anywhere, a row goes only by its own token.
-- $1 retention in µs  $2 page from which  $3 before which page
select count(*), coalesce(max(l.token + (l.successor is not null)::int), 0)
  from rowlock_lease l, rowlock_token_floor f
 where f.id = 1 and l.session is null and l.token + (l.successor is not null)::int > f.settled
   and l.ctid >= ('(' || $2::bigint::text || ',0)')::tid and l.ctid < ('(' || $3::bigint::text || ',0)')::tid
   and l.changed_at <= clock_timestamp() - $1::bigint::float8 * interval '1 microsecond'
   and not exists (select from rowlock_waiter w where w.name = l.name)
