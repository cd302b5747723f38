-- Leases that are free by definition but still name a holder, a batch.
-- $1 after which name  $2 batch
select l.name, l.token, l.session
  from rowlock_lease l left join rowlock_session s on s.id = l.session
 where l.session is not null and {free} and l.name > $1
 order by l.name limit $2
