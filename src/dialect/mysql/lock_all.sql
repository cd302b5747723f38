-- Locks the rows of leases that nobody else has locked: waits for none, so it cannot be in a deadlock.
-- In a short transaction, before they are written: see take_locked and release_locked. MySQL 8, MariaDB
-- 10.6.
-- $1 … $16 names; may repeat
-- → name, token, session, grant id
select l.name, l.token, l.session, l.grant_id
  from rowlock_lease l force index (primary)
 where l.name in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
   for update skip locked
