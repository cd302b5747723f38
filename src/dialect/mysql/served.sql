-- Whether a place was served: the lease is this grant. Reads only.
-- $1 name  $2 my session  $3 grant id
-- → token, what is left of its own deadline in µs, or NULL
select l.token, l.deadline - {now}
  from rowlock_lease l
 where l.name = $1 and l.session = $2 and l.grant_id = $3
