-- Which of these names' rows are grants of a session, for a holder that compares what it believes with the
-- table. By primary key: no index leads from a session to its leases. Reads only.
-- $1 session  $2 … $17 names; may repeat
-- → grant id, token
select l.grant_id, l.token
  from rowlock_lease l
 where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.session = $1
