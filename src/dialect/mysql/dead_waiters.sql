-- Tickets of sessions that are ended or gone, a batch. A dead session stays dead.
-- $1 batch
select w.ticket from rowlock_waiter w left join rowlock_session s on s.id = w.session
 where s.id is null or s.ended = 1
 order by w.ticket limit $1
