-- Gives a lease to a waiter: compare-and-set on the token of the look before, in one transaction with
-- the deletion of the ticket. The waiter's session lives: who was seen a while ago may be gone. Every grant changes the token, so a look that became stale fails.
-- $1 name  $2 its session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 probed token  $8 new token
update rowlock_lease
   set token = $8, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7
   and exists (select 1 from rowlock_session m where m.id = $2 and {live})
