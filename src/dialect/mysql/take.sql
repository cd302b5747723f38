-- Grants a free lease whose row exists: compare-and-set on the probed token. Every grant changes the
-- token, and a row that is free at one token is never held at it again, so a probe that became stale
-- fails and never steals. One row changed: granted, and the token is known. To ourselves, or, together
-- with the deletion of a ticket, to a waiter.
-- The look before said that nobody waits. A ticket that was committed between the two is passed: its
-- enqueue and our acquire overlapped, and either order is right.
-- The session that gets it lives here: who was seen a while ago may be gone (fragment live).
-- $1 name  $2 session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 probed token  $8 new token
update rowlock_lease
   set token = $8, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1
