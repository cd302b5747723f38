-- Deletes idle rows under the settled floor, a batch; names with tickets are left alone.
-- $1 batch  $2 retention in µs
delete from rowlock_lease
 where name in (select l.name from rowlock_lease l
                 where l.session is null
                   and l.token <= (select f.settled from rowlock_token_floor f where f.id = 1)
                   and l.changed_at <= {now} - $2
                   and not exists (select 1 from rowlock_waiter w where w.name = l.name)
                 limit $1)
