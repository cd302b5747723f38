-- Which of these names have a live waiter. Reads only.
-- $1 … $16 names; may repeat
select distinct w.name
  from rowlock_waiter w join rowlock_session m on m.id = w.session
 where w.name in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
   and {live}
