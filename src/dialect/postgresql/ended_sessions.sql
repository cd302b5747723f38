-- Sessions that are ended and have no place in a queue, a batch. A dead session stays dead: nothing new
-- will name it, but for an acquire that was in flight when it ended.
-- $1 after which id  $2 batch
select m.id from rowlock_session m
 where m.ended and m.id > $1::bigint
   and not exists (select from rowlock_waiter w where w.session = m.id)
 order by m.id limit $2::bigint
