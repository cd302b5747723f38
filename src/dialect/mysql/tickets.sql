-- The tickets of places, to be deleted by primary key: by grant id that deadlocks with enqueuers.
-- $1 … $16 grant ids; may repeat
-- → grant id, ticket
select w.grant_id, w.ticket from rowlock_waiter w
 where w.grant_id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
 order by w.ticket
