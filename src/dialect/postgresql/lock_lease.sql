-- Locks a lease's row for the transaction, if it is still this grant. Lease first, then session: as every
-- transaction that needs both (docs/adr/0010).
-- $1 name  $2 token  $3 session
select 1 from rowlock_lease
 where name = $1::text and token = $2::bigint and session = $3::bigint
   for update
