-- How many rows are idle past the retention above the settled floor, among some names, and their
-- greatest token. A row that changes while the reaper goes on may be counted or not: the floor may be
-- anywhere, a row goes only by its own token.
-- $1 retention in µs  $2 after which name  $3 up to which, NULL = to the last
select count(*), coalesce(max(l.token), 0)
  from rowlock_lease l
 where l.name > $2 and l.name <= coalesce($3, x'ff') and l.session is null
   and l.token > (select f.settled from rowlock_token_floor f where f.id = 1)
   and l.changed_at <= {now} - $1
   and not exists (select 1 from rowlock_waiter w where w.name = l.name)
