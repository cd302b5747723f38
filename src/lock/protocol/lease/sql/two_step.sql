-- statement inspect
-- Shows one name to an operator. No row for a semaphore, for a lock that has counted holds, or for a name without a row;
-- of the last, one if a live client waits for all of it (a waiter for a lock that was reaped recreates the row).
-- $1 name
select {info}
  from (select {text($1)} as name) n
       left join rowlock_lock l on l.name = n.name
       left join rowlock_session s on s.id = l.session
 where coalesce(l.capacity is null and l.used = 0,
                exists (select 1 from rowlock_ticket w {join} rowlock_session m
                         where w.name = $1 and w.weight is null and m.id = w.session and {live}))

-- statement probe
-- Probes a lease: reads only, locks nothing, writes nothing. An acquire begins with one, unless
-- it reacquires.
-- $1 name  $2 my session
-- → the token a grant would carry (NULL without a floor), whether my session lives, {probe}
select {greatest}(coalesce(l.token, 0), f.floor) + 1,
       (select count(*) from rowlock_session m where m.id = $2 and {live}),
       {probe}
  from (select 1 as one) as one
       left join rowlock_token_floor f on f.id = 1
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session

-- statement take
-- Grants a free lease whose row exists: compare-and-set on the probed token. Every grant changes the token,
-- and a row that is free at one token is never held at it again, so a stale probe fails and never steals. One
-- row changed: granted, and the token is known. Grants to our own session or, together with the deletion of a
-- ticket, to a waiter.
-- The preceding probe found no waiter. A ticket committed between the two is overtaken: its enqueue and our
-- acquire overlapped, and either order is right.
-- The session that receives the lease must live here: one seen a while ago may be gone (fragment live).
-- $1 name  $2 session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 probed token  $8 new token
update rowlock_lock
   set token = $8, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1
