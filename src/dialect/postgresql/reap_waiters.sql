-- Removes tickets of sessions that are ended or gone, a batch. A dead session stays dead, so the
-- judgement cannot become stale.
-- $1 batch
with k as materialized (
         select w.name, w.ticket
           from rowlock_waiter w left join rowlock_session s on s.id = w.session
          where s.id is null or s.ended
          order by w.ticket limit $1::bigint for update of w skip locked)
delete from rowlock_waiter w using k where w.name = k.name and w.ticket = k.ticket
