-- statement reacquire
-- Takes a lease again that this client has released: one row changed if it was granted, and the new token is
-- the known one + 1. Compare-and-set: every grant changes the token, so a row that is free at the known token
-- has had no holder since. A writing statement has the file to itself, so its subqueries see the current
-- state. It finds out less than acquire and costs less: anything except a row that is free by NULL at that
-- token, without a ticket, is left to acquire. If it fails, no page changes.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 the token it was released at
update rowlock_lock
   set token = $7 + 1, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7 and session is null
   and exists (select 1 from rowlock_token_floor f where f.id = 1 and f.floor <= $7)
   and exists (select 1 from rowlock_session m where m.id = $2 and {live})
   and not exists (select 1 from rowlock_ticket w where w.name = $1)
