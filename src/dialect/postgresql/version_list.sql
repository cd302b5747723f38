-- A page of resources for people, by name.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select resource, version, (deleted_at is not null)::int,
       (extract(epoch from clock_timestamp() - updated_at) * 1000000)::bigint
  from rowlock_version
 where resource >= $1::text and resource < $2::text and resource > $3::text
 order by resource limit $4::bigint
