-- Deletes idle rows under the settled floor, among some names; names with tickets are left alone. Of so
-- few rows that the file is not locked for long, however many there are.
-- $1 retention in µs  $2 after which name  $3 up to which, NULL = to the last
delete from rowlock_lease
 where name > $2 and name <= coalesce($3, x'ff') and session is null
   and token <= (select f.settled from rowlock_token_floor f where f.id = 1)
   and changed_at <= {now} - $1
   and not exists (select 1 from rowlock_waiter w where w.name = rowlock_lease.name)
