-- Deletes idle rows under the settled floor, a batch. The lock re-checks the row's own columns, so one
-- that was granted meanwhile stays; locked rows and names with tickets are left alone.
-- $1 batch  $2 retention in µs
with k as materialized (
         select l.name from rowlock_lease l
          where l.session is null and l.token + (l.successor is not null)::int
                <= (select f.settled from rowlock_token_floor f)
            and l.changed_at <= clock_timestamp() - $2::bigint * interval '1 microsecond'
            and not exists (select from rowlock_waiter w where w.name = l.name)
          order by l.name limit $1::bigint for update of l skip locked)
delete from rowlock_lease l using k where l.name = k.name
