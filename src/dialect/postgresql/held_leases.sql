-- Which of these names' rows are grants of a session, for a holder that compares what it believes with the
-- table. By primary key: no index leads from a session to its leases. Reads only.
-- $1 session  $2 names, as an array's text
-- → grant id, token
select l.grant_id, l.token
  from rowlock_lease l
 where l.name = any ($2::text::text[]) and l.session = $1::bigint
