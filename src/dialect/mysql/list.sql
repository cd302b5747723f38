-- A page of names for people, by name: those that have a lease, and those that have only waiters (of
-- a lease that was reaped). Each half reads no further than the page.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select {info}
  from (select a.name
          from (select l.name from rowlock_lease l
                 where l.name >= $1 and l.name < $2 and l.name > $3
                 order by l.name limit $4) a
        union
        select b.name
          from (select distinct w.name from rowlock_waiter w straight_join rowlock_session m
                 where w.name >= $1 and w.name < $2 and w.name > $3
                   and m.id = w.session and {live}
                 order by w.name limit $4) b
        order by name limit $4) n
       left join rowlock_lease l on l.name = n.name
       left join rowlock_session s on s.id = l.session
 order by n.name
