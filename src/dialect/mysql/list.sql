-- A page of leases for people, by name.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select {info}
  from rowlock_lease l left join rowlock_session s on s.id = l.session
 where l.name >= $1 and l.name < $2 and l.name > $3
 order by l.name limit $4
