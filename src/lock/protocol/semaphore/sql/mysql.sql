-- statement create_semaphore
-- Makes a semaphore of a lock that nobody holds or waits for: the write judges the row's own columns under its lock. The
-- token rises, so whoever judged it free before finds another one. A ticket that is committed after this statement began
-- is not seen: its client finds, by its next look, what the name has become.
-- $1 name  $2 capacity
update rowlock_lock
   set capacity = $2, token = greatest(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1, changed_at = {now}
 where name = $1 and capacity is null and session is null and used = 0
   and coalesce(exists (select 1 from rowlock_ticket w where w.name = $1), 1) = 0

-- statement lock_semaphore
-- Locks a counter. In the next statement of the transaction no take and no grant is under way, and a give that is
-- has not lowered the counter: its hold is still seen.
-- $1 name
select p.used from rowlock_lock p where p.name = $1 for update

-- statement lock_permit
-- Locks a hold, by primary key. Hold first, then session, as with leases (docs/adr/0010).
-- $1 name  $2 grant id  $3 session
-- → whether another client has asked for its release
select requested from rowlock_hold where name = $1 and grant_id = $2 and session = $3 for update

-- statement lock_permit_now
-- Locks a hold that has ended, by primary key, unless another transaction has it locked: a fence, or another end.
-- $1 name  $2 grant id  $3 session  $4 1 = its session has ended
select 1 from rowlock_hold
 where name = $1 and grant_id = $2 and session = $3 and ($4 = 1 or deadline <= {now}) for update skip locked

-- statement lock_upgraded
-- Locks the hold that an upgrade is of, which is the only one.
-- $1 name  $2 grant id of the upgrade
-- → grant id, weight of the hold
select grant_id, weight from rowlock_hold
 where name = $1 and exists (select 1 from rowlock_lock l where l.name = $1 and l.grant_id = $2 and l.session is null)
   for update

-- statement confirm_permit
-- Makes a hold that was read durable by a later commit of our own. Changes the row, so that there is something
-- to commit.
-- $1 name  $2 my session  $3 grant id
update rowlock_hold set acquired_at = acquired_at + 1
 where name = $1 and grant_id = $3 and session = $2

-- statement confirm_upgrade
-- The same of an upgrade. Its hold may be in a fence of the caller's; no fence has this row.
-- $1 name  $2 grant id of the upgrade
update rowlock_lock set changed_at = changed_at + 1 where name = $1 and grant_id = $2 and session is null

-- statement mark_expired
-- Says to the history that a hold is swept, and not released: see migrations/mysql/history/on_permits.sql.
-- $1 name  $2 grant id  $3 session
update rowlock_hold set deadline = 1
 where name = $1 and grant_id = $2 and session = $3 and (deadline is null or deadline > 1)
