-- A page of names for people, by name: those that have a lease, and those that have only waiters (of
-- a lease that was reaped). Each half reads no further than the page.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
with n as materialized (
    (select l.name from rowlock_lease l
      where l.name >= $1::text and l.name < $2::text and l.name > $3::text
      order by l.name limit $4::bigint)
    union
    (select distinct w.name from rowlock_waiter w join rowlock_session m on m.id = w.session
      where w.name >= $1::text and w.name < $2::text and w.name > $3::text and {live}
      order by w.name limit $4::bigint)
    order by name limit $4::bigint)
select {info}
  from n left join rowlock_lease l on l.name = n.name
         left join rowlock_session s on s.id = l.session
         cross join {queue}
 order by n.name
