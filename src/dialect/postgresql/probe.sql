-- The light look of those who wait: reads, locks nothing, writes nothing.
-- $1 name  $2 my session
-- → NULL, whether my session lives, {look}
select null, (select count(*) from rowlock_session m where m.id = $2::bigint and {live}), {look}
  from (values (1)) as one
       left join rowlock_lease l on l.name = $1::text
       left join rowlock_session s on s.id = l.session
