-- Every lease that names a session. Scans the table: no index on a column that each grant changes.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs
select l.name, l.grant_id, l.token, l.deadline - {now}
  from rowlock_lease l
 where l.session = $1
 order by l.name
