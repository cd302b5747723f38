-- One lease for people.
-- $1 name
select {info}
  from rowlock_lease l left join rowlock_session s on s.id = l.session
 where l.name = $1
