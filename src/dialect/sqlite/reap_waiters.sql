-- Removes tickets of sessions that are ended or gone, a batch.
-- $1 batch
delete from rowlock_waiter
 where ticket in (select w.ticket
                    from rowlock_waiter w left join rowlock_session s on s.id = w.session
                   where s.id is null or s.ended = 1 limit $1)
