-- statement create_semaphore
-- Makes a semaphore of a lock that nobody holds or waits for: the write judges the row's own columns under its lock. The
-- token rises, so whoever judged it free before finds another one. A ticket that is committed after this statement began
-- is not seen: its client finds, by its next look, what the name has become.
-- $1 name  $2 capacity
update rowlock_lock
   set capacity = $2, token = max(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1, changed_at = {now}
 where name = $1 and capacity is null and session is null and used = 0
   and not exists (select 1 from rowlock_ticket w where w.name = $1)

-- statement lock_semaphore
-- Reads a counter. The transaction is the only writer from its beginning.
-- $1 name
select p.used from rowlock_lock p where p.name = $1

-- statement lock_permit_now
-- Judges again a hold that a look found to have ended. The transaction is the only writer from its beginning.
-- $1 name  $2 grant id  $3 session  $4 1 = its session has ended
select 1 from rowlock_hold
 where name = $1 and grant_id = $2 and session = $3 and ($4 = 1 or deadline <= {now})

-- statement lock_permit
-- Reads a hold, by primary key. The transaction is the only writer from its beginning.
-- $1 name  $2 grant id  $3 session
-- → whether another client has asked for its release
select requested from rowlock_hold where name = $1 and grant_id = $2 and session = $3

-- statement lock_upgraded
-- Reads the hold that an upgrade is of. The transaction is the only writer from its beginning.
-- $1 name  $2 grant id of the upgrade
-- → grant id, weight of the hold
select grant_id, weight from rowlock_hold
 where name = $1 and exists (select 1 from rowlock_lock l where l.name = $1 and l.grant_id = $2 and l.session is null)
