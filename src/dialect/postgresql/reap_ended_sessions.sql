-- Deletes sessions that are ended and referenced by nothing, a batch. An acquire that was in flight
-- when its session ended may still write the id afterwards: a lease whose session is missing is free.
-- $1 batch
with k as materialized (
         select m.id from rowlock_session m
          where m.ended
            and not exists (select from rowlock_lease l where l.session = m.id)
            and not exists (select from rowlock_waiter w where w.session = m.id)
          order by m.id limit $1::bigint for update of m skip locked)
delete from rowlock_session m using k where m.id = k.id and m.ended
