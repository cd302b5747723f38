-- Gives up places.
-- $1 … $16 grant ids; may repeat
-- → the grant ids whose tickets this call deleted
delete from rowlock_waiter
 where grant_id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
returning grant_id
