-- A look at a lease: reads, locks nothing, writes nothing. Every grant begins with one.
-- $1 name  $2 my session
-- → the token a grant would carry, whether my session lives, {look}
select greatest(coalesce(l.token, 0), f.floor) + 1,
       (select count(*) from rowlock_session m where m.id = $2 and {live}),
       {look}
  from rowlock_token_floor f
       left join rowlock_lease l on l.name = $1
       left join rowlock_session s on s.id = l.session
 where f.id = 1
