-- Which leases of these names are grants of a session. By primary key, reads only.
-- $1 my session  $2 … $17 names; may repeat
-- → grant id, token, what is left of its own deadline in µs, or NULL
select l.grant_id, l.token, l.deadline - {now}
  from rowlock_lease l
 where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.session = $1
