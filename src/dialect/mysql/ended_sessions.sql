-- Sessions that are ended and have no place in a queue, a batch.
-- $1 after which id  $2 batch
select m.id from rowlock_session m
 where m.ended = 1 and m.id > $1
   and not exists (select 1 from rowlock_waiter w where w.session = m.id)
 order by m.id limit $2
