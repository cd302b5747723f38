-- Deletes sessions that are ended and referenced by nothing, a batch.
-- $1 batch
delete from rowlock_session
 where id in (select m.id from rowlock_session m
               where m.ended = 1
                 and not exists (select 1 from rowlock_lease l where l.session = m.id)
                 and not exists (select 1 from rowlock_waiter w where w.session = m.id)
               limit $1)
