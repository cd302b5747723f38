-- Frees leases that are free by definition but still name a holder, a batch.
-- $1 batch
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name in (select l.name
                  from rowlock_lease l left join rowlock_session s on s.id = l.session
                 where l.session is not null and {free} limit $1)
