-- Every lease that names a session. Scans the table: no index on a column that each grant changes.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs
select l.name, l.grant_id, l.token, (extract(epoch from l.deadline - clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint
  from rowlock_lease l
 where l.session = $1::bigint
 order by l.name
