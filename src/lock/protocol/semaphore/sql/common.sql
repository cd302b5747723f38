-- statement set_capacity
-- Changes how many permits a semaphore has; less than `used` is allowed. Then check the queue.
-- $1 name  $2 capacity
update rowlock_lock set capacity = $2::bigint where name = $1::text and capacity is not null

-- statement semaphore_state
-- How a lock stands, for a counted take; reads only.
-- $1 name  $2 my session
-- → capacity (NULL: modes) and used (NULL: it has no row); whether my session lives, whether a live session waits,
--   whether the row names a sole holder, alive or not; its session, its grant id
select l.capacity, l.used,
       (select count(*) from rowlock_session m where m.id = $2::bigint and {live}),
       {waited_at(l)}::int, (l.session is not null)::int, l.session, l.grant_id
  from (select 1 as one) as one left join rowlock_lock l on l.name = $1::text

-- statement find_permits
-- Finds a hold, or the upgrade of a hold, by its grant id: of a take whose reply was lost, or of an entry that may have
-- been served.
-- $1 name  $2 my session  $3 grant id
-- → token, what is left of its own deadline in µs, or NULL; permits, 0 of an upgrade
select s.token,
       {until(s.deadline)},
       s.weight
  from rowlock_hold s
 where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint
union all
select l.token, null, 0
  from rowlock_lock l
 where l.name = $1::text and l.grant_id = $3::bigint and l.session is null

-- statement upgrade_look
-- Whether a hold could be upgraded: it lives, and is the only one. Reads only; upgrade_lock decides.
-- $1 name  $2 my session  $3 grant id of the hold
-- → the lock's token, the token of the upgrade, the weight of the hold, whether that is all that is used, and nobody is
--   upgraded; no row if the hold has ended
select l.token, {next_token(l)}, s.weight, (l.used = s.weight and l.session is null and not {upgraded(l)})::int
  from rowlock_hold s {join} rowlock_lock l {join} rowlock_session m
 where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint and l.name = s.name and m.id = s.session
   and not {hold_over} and {live}

-- statement upgrade_lock
-- Upgrades a hold: the lock's row names the upgrade, and has no room from then on. By compare-and-set on the token of the
-- look: since then nobody was granted anything, nor was anybody upgraded, so whoever is counted in `used` now was there at
-- the look; and there the hold was alone. Were it over, its weight would be missing; if it is being ended at this moment,
-- whoever ends it waits for this row, and ends the upgrade with it. No lock of the hold is needed, so a transaction that
-- has fenced it, most likely the caller's, is not waited for. Durable. A repetition changes nothing.
-- $1 name  $2 grant id of the upgrade  $3 the lock's token  $4 the token of the upgrade  $5 the weight of the hold
update rowlock_lock set grant_id = $2::bigint, token = $4::bigint, {unpromise}changed_at = {now}
 where name = $1::text and token = $3::bigint and used = $5::bigint and session is null and grant_id is null

-- statement find_several_permits
-- find_permits for several holds of one semaphore.
-- $1 name  $2 my session  $3 … $18 grant ids; may repeat
-- → grant id, token, permits
select s.grant_id, s.token, s.weight
  from rowlock_hold s
 where s.name = $1 and s.session = $2
   and s.grant_id in ($3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- statement permit_holders
-- Whether what the holders of a lock have is to be taken back, or when; reads only.
-- $1 name
-- → whether a session with counted holds has expired, but is not ended; whether there are counted holds that have ended;
--   until the next of the others ends without a heartbeat, in µs, NULL: none; room, NULL: no row;
--   of a sole holder: its session, the row's token, whether it has ended (clear_sole), whether its session has expired,
--   its remaining time in µs
select h.expired, h.dead, h.next_end, {room(l)}, l.session, l.token, {holder_gone},
       coalesce(s.expires_at <= {now}, 0),
       {until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))}
  from (select coalesce(max(m.ended = 0 and m.expires_at <= {now}), 0) as expired,
               coalesce(max({hold_over}), 0) as dead,
               {until(min(case when not {hold_over} and m.expires_at > {now}
                        then coalesce({least}(m.expires_at, s.deadline), m.expires_at) end))} as next_end
          from rowlock_hold s left join rowlock_session m on m.id = s.session
         where s.name = $1) h
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session

-- statement expired_holders
-- Some of the sessions that hold permits of a semaphore and have expired, but are not ended; reads only. Each is
-- ended by a conditional write of its own, before its permits may be taken back (I3).
-- $1 name
select distinct m.id
  from rowlock_hold s join rowlock_session m on m.id = s.session
 where s.name = $1::text and not m.ended and m.expires_at <= {now}
 limit 64

-- statement permits_of
-- The holds of a session, to compare a holder's belief with the table. By the index on session, reads only.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs, or NULL, whether it was ended by force, permits,
--   whether another client has asked for its release; who did so within a time, or NULL, and why; if it is upgraded, the
--   grant id and the token of that; whether it is of a semaphore
select s.name, s.grant_id, s.token, {until(s.deadline)}, coalesce(s.deadline = {epoch}, false)::int, s.weight,
       s.requested, s.asked_by, s.reason,
       case when {upgraded(l)} then l.grant_id end, case when {upgraded(l)} then l.token end,
       coalesce(l.capacity is not null, false)::int
  from rowlock_hold s left join rowlock_lock l on l.name = s.name
 where s.session = $1::bigint
 order by s.name, s.token

-- statement holds_to_tend
-- A batch of locks for the reaper: those with counted holds that have ended, or whose `used` is not the sum of its holds,
-- which should never be. One snapshot, reads only.
-- $1 after which name  $2 batch
-- → name, used less the sum; 1 for an upgrade without a hold
select s.name, coalesce(max(p.used), 0) - sum(s.weight)::bigint
  from rowlock_hold s left join rowlock_session m on m.id = s.session left join rowlock_lock p on p.name = s.name
 where s.name > $1::text
 group by s.name
having coalesce(max(p.used), 0) <> sum(s.weight)::bigint or max({hold_over}::int) = 1
union all
select p.name, case when p.used = 0 then 1 else p.used end from rowlock_lock p
 where p.name > $1::text and (p.used <> 0 or {upgraded(p)}) and not exists (select 1 from rowlock_hold s where s.name = p.name)
 order by 1 limit $2::bigint

-- statement correct_counter
-- Sets a counter to the sum of its holds. The transaction has locked it before (lock_semaphore), so what this reads
-- is younger than the lock.
-- $1 name
update rowlock_lock
   set used = (select coalesce(sum(s.weight), 0)::bigint from rowlock_hold s where s.name = $1::text),
       grant_id = case when session is not null or exists (select 1 from rowlock_hold s where s.name = $1::text) then grant_id end
 where name = $1::text
   and (used <> (select coalesce(sum(s.weight), 0)::bigint from rowlock_hold s where s.name = $1::text)
        or {upgraded(rowlock_lock)} and not exists (select 1 from rowlock_hold s where s.name = $1::text))

-- statement counter_exists
-- Whether there is a semaphore of this name, or a lock that is none. Reads only.
-- $1 name  $2 0: a semaphore, 1: not
select count(*) from rowlock_lock p where p.name = $1::text and (p.capacity is null)::int = $2::int

-- statement inspect_semaphore
-- A semaphore, or the holds and waiters of a lock that is none, for display. Reads only.
-- $1 name  $2 0: a semaphore, 1: not
-- → {semaphore_info}
select {semaphore_info} from rowlock_lock p
 where p.name = $1::text and (p.capacity is null)::int = $2::int

-- statement list_semaphores
-- A page of semaphores, or of locks with counted holds or counted waiters, for display, by name. Reads only.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many  $5 0: semaphores, 1: not
-- → {semaphore_info}
select {semaphore_info} from rowlock_lock p
 where p.name >= $1::text and p.name < $2::text and p.name > $3::text
   and (p.capacity is null)::int = $5::int and {counts(p)}
 order by p.name limit $4::bigint

-- statement holders_of_permits
-- The holders of a lock, of parts or of all of it, for display, the oldest first. Reads only.
-- $1 name  $2 how many at most
-- → session, grant id, owner, host, program, thread, note, pid, µs held, its remaining time in µs, permits, token, which
--   is that of its upgrade, if it has one, and its first token
select h.session, h.grant_id, m.owner, m.host, m.program, h.thread, h.note, m.pid,
       {since(h.acquired_at)},
       {until(coalesce({least}(m.expires_at, h.deadline), m.expires_at))},
       h.weight, h.token, h.first_token
  from (select s.session, s.grant_id, s.thread, s.note, s.acquired_at, s.deadline, {weight_of(s)} as weight,
               {token_of(s)} as token, s.token as first_token
          from rowlock_hold s join rowlock_session m on m.id = s.session
         where s.name = $1 and not {hold_over}
         union all
        select l.session, l.grant_id, l.thread, l.note, l.acquired_at, l.deadline, 1999999999, l.token, l.token
          from rowlock_lock l join rowlock_session s on s.id = l.session
         where l.name = $1 and not {holder_gone}) h
       join rowlock_session m on m.id = h.session
 order by h.first_token limit $2

-- statement hold_to_end
-- The hold that a token names, its own or that of its upgrade, for an operator who ends it. Reads only.
-- $1 name  $2 token
-- → session, grant id
select s.session, s.grant_id
  from rowlock_hold s left join rowlock_lock l on l.name = s.name left join rowlock_session m on m.id = s.session
 where s.name = $1::text and (s.token = $2::bigint or l.token = $2::bigint and {upgraded(l)}) and not {hold_over}

-- statement shorten_permit
-- Sets the deadline of a hold to the time at which its session would expire without another heartbeat, or to so long from
-- now, whichever is later, unless that ends before, and marks it. Never later than it was. The transaction has locked the
-- hold, and then the session by bump_revision: as shorten_lease. An upgrade, also one that is committed later, ends with it.
-- $1 name  $2 grant id  $3 session  $4 how long from now, in µs  $5 who asks, or NULL: the holder gives it up at once
-- $6 why
update rowlock_hold
   set deadline = (select {least}(coalesce(rowlock_hold.deadline, {greatest}(m.expires_at, {now} + {span($4)})),
                                  {greatest}(m.expires_at, {now} + {span($4)}))
                     from rowlock_session m where m.id = $3::bigint),
       requested = 1, asked_by = $5::text, reason = $6::text
 where name = $1::text and grant_id = $2::bigint and session = $3::bigint
   and (select 1 from rowlock_session m where m.id = $3::bigint) = 1

-- statement end_permit
-- Ends a hold from outside: from the commit on every fence of it fails and every judgement finds it over (hold_over), and
-- any client may sweep it. A fence has the row locked: then this waits for that transaction. The hold is locked before
-- (lock_permit), and bump_revision follows. 0 says that it was ended by force. An upgrade, also one that is committed later,
-- ends with its hold. The note becomes who did it: a history records it.
-- $1 name  $2 grant id  $3 session  $4 by whom, or NULL
update rowlock_hold set deadline = {epoch}, note = coalesce($4::text, note)
 where name = $1::text and grant_id = $2::bigint and session = $3::bigint

-- statement extend_permit
-- Sets a hold's own deadline to so long from now, unless that has passed. The transaction has locked the hold
-- (lock_permit), and has then read that its client knows every change of its session's rows: a request for this
-- release locks the hold before it raises the revision, so one that came first has been seen, and one that comes later
-- shortens this deadline. Never earlier than it was, and always a change: the commit makes an earlier one, whose reply was
-- lost, durable.
-- $1 name  $2 grant id  $3 session  $4 how long from now, in µs
update rowlock_hold set deadline = {greatest}(deadline + {span(1)}, {now} + {span($4)})
 where name = $1::text and grant_id = $2::bigint and session = $3::bigint and deadline > {now} and requested = 0

-- statement raise_counter_token
-- Draws a token for a hold that is reclaimed. Locks the counter, behind the hold, as a release does. An upgrade gets another
-- grant id: one that the predecessor's client ends late is not ours.
-- $1 name
update rowlock_lock
   set token = {next_token(rowlock_lock)}, {unpromise}grant_id = grant_id + 1, changed_at = {now}
 where name = $1::text

-- statement reclaim_permit
-- Moves a hold of a predecessor, ended in this transaction, to our session, with the token drawn before. The transaction
-- has locked the hold (lock_permit). Not one that is over, by its deadline or by force, nor one that another client has
-- asked for. Its thread is of another process.
-- $1 name  $2 grant id  $3 the predecessor's session  $4 my session
update rowlock_hold
   set session = $4::bigint, token = (select p.token from rowlock_lock p where p.name = $1::text), acquired_at = {now},
       thread = null
 where name = $1::text and grant_id = $2::bigint and session = $3::bigint
   and not coalesce(deadline <= {now}, false) and requested = 0
   and (select 1 from rowlock_session m where m.id = $4::bigint and {live}) = 1
   and (select 1 from rowlock_lock p where p.name = $1::text) = 1

-- statement wrong_counters
-- The locks whose `used` is not the sum of their holds, which should never be, for a person. One snapshot, reads only.
-- → how many locks have counted holds or a capacity; how many are wrong; the first of these
with counted as (
         select p.name, p.used from rowlock_lock p where p.used <> 0 or p.capacity is not null
         union
         select s.name, coalesce((select p.used from rowlock_lock p where p.name = s.name), 0) from rowlock_hold s),
     wrong as (
         select c.name from counted c
          where c.used <> (select coalesce(sum(s.weight), 0)::bigint from rowlock_hold s where s.name = c.name))
select (select count(*) from counted), (select count(*) from wrong),
       (select w.name from wrong w order by w.name limit 1)

-- statement drop_upgrade
-- As end_upgrade, of an upgrade in which no caller has ever believed: nobody works under it, so the hold is not locked, and a
-- transaction that is fenced with it, perhaps of the caller who asks for the upgrade again, is not waited for.
-- $1 name  $2 grant id of the upgrade
update rowlock_lock set grant_id = null, token = token + 1, changed_at = {now}
 where name = $1::text and grant_id = $2::bigint and session is null

-- statement lock_permit
-- Locks a hold, by primary key. Hold first, then session, as with leases (docs/adr/0010).
-- $1 name  $2 grant id  $3 session
-- → whether another client has asked for its release
select requested from rowlock_hold
 where name = $1::text and grant_id = $2::bigint and session = $3::bigint {for_update}

-- statement lock_semaphore
-- Locks a counter. In the next statement of the transaction no take and no grant is under way, and a give that is
-- has not lowered the counter: its hold is still seen.
-- $1 name
select p.used from rowlock_lock p where p.name = $1::text {for_update}

-- statement create_semaphore
-- Makes a semaphore of a lock that nobody holds or waits for: the write judges the row's own columns under its lock. The
-- token rises, so whoever judged it free before finds another one; a promised token is passed over. A ticket that is
-- committed after this snapshot is not seen: its client finds, by its next look, what the name has become.
-- $1 name  $2 capacity
update rowlock_lock
   set capacity = $2::bigint, token = {next_token(rowlock_lock)}, {unpromise}changed_at = {now}
 where name = $1::text and capacity is null and session is null and used = 0
   and not coalesce(exists (select 1 from rowlock_ticket w where w.name = $1::text), true)
