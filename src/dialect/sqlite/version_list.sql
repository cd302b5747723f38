-- A page of resources for people, by name.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select resource, version, deleted_at is not null, {now} - updated_at
  from rowlock_version
 where resource >= $1 and resource < $2 and resource > $3
 order by resource limit $4
