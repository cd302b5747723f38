-- Whether a place was served: the lease is this grant. Reads only.
-- $1 name  $2 my session  $3 grant id
-- → token, what is left of its own deadline in µs, or NULL
select l.token, (extract(epoch from l.deadline - clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint
  from rowlock_lease l
 where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
