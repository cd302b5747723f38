-- Idle rows under the settled floor, a batch.
-- $1 after which name  $2 retention in µs  $3 batch
select l.name, l.token, l.changed_at
  from rowlock_lease l, rowlock_token_floor f
 where f.id = 1 and l.session is null and l.token <= f.settled and l.changed_at <= {now} - $2
   and l.name > $1
   and not exists (select 1 from rowlock_waiter w where w.name = l.name)
 order by l.name limit $3
