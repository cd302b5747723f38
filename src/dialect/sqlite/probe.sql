-- The light look of those who wait: reads, writes nothing, does not wait for a writer.
-- $1 name  $2 my session
-- → NULL, whether my session lives, {look}
select null, (select count(*) from rowlock_session m where m.id = $2 and {live}), {look}
  from (select 1) as one
       left join rowlock_lease l on l.name = $1
       left join rowlock_session s on s.id = l.session
