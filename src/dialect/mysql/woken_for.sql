-- Which leases of these names are grants of a session: what it was woken for. By primary key, reads only;
-- what others commit at this moment is seen before it is on the disk. Whoever has committed a grant holds
-- a user-level lock, rowlock_told_…, from the return of its COMMIT on (strategy/wake_up.hpp): a grant
-- whose lock is held is durable.
-- $1 my session  $2 … $17 names; may repeat
-- → grant id, token, what is left of its own deadline in µs, or NULL; whether it is known to be durable
select l.grant_id, l.token, l.deadline - {now},
       is_used_lock(concat('rowlock_told_', l.grant_id)) is not null
  from rowlock_lease l
 where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.session = $1
