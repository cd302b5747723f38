-- statement take_permits
-- Takes permits, or a mode, if there is room, nobody holds all of the lock and no live session waits.
-- The lock's row decides: the update locks it, and after a wait for that lock `session is null` and the
-- room are judged again on the row as it is. A sole holder that has ended is taken out before, by clear_sole; nothing
-- here judges a session. A promised token is passed over, so nobody may believe it twice. The hold is
-- inserted in the same statement, so `used` is the sum of the holds in every committed state. Waiters and our
-- session are judged as of the beginning of the statement, as in acquire: a ticket that commits later was
-- requested at the same time. A session that ends meanwhile leaves a hold that sweep_permits ends.
-- The row is hot, so the commit is asynchronous ($8) and the row's lock does not last for the disk: no caller learns
-- of the grant before flush_commits has returned. Behind a pooler the connection may outlive a crash of the server
-- between the two, so there the commit is durable.
-- $1 name  $2 my session  $3 grant id  $4 permits  $5 thread  $6 note  $7 own deadline in µs, or NULL
-- $8 1 = asynchronously  $9 0: permits, 1: a mode
-- → grant id, token; no row if nothing was taken
with u as (
         update rowlock_lock p
            set used = p.used + $4::bigint,
                token = greatest(p.token, (select f.floor from rowlock_token_floor f)) + 1
                        + (p.successor is not null)::int,
                successor = null, changed_at = clock_timestamp()
          where p.name = $1::text and (p.capacity is null)::int = $9::int and p.session is null
            and $4::bigint <= {room(p)} and not {waited_at(p)}
            and exists (select from rowlock_session m where m.id = $2::bigint and {live})
            and ($8::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
         returning p.token)
insert into rowlock_hold (name, grant_id, session, weight, token, thread, note, acquired_at, deadline)
select $1::text, $3::bigint, $2::bigint, $4::bigint, u.token, $5::text, $6::text, clock_timestamp(),
       clock_timestamp() + $7::bigint::float8 * interval '1 microsecond'
  from u
returning grant_id, token

-- statement take_permits_together
-- `take_permits` for several requests of one session, by one commit: for as many, from the first on, as fit together.
-- The counter's row is locked first, and what is free is read under the lock; the lock judges
-- the row as it is then.
-- $1 name  $2 my session  $3 1 = asynchronously  $4 0: permits, 1: modes
-- arrays: $5 grant ids  $6 permits  $7 threads  $8 notes  $9 own deadlines in µs
-- → grant id, token of each that was granted
with f as materialized (
         select greatest(p.token, (select o.floor from rowlock_token_floor o)) + (p.successor is not null)::int as token,
                {room(p)} as free
           from rowlock_lock p
          where p.name = $1::text and (p.capacity is null)::int = $4::int and p.session is null
            and {room(p)} > 0 and not {waited_at(p)}
            and exists (select from rowlock_session m where m.id = $2::bigint and {live})
            and ($3::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
            for update of p),
     c as materialized (
         select q.*
           from (select r.*, (sum(r.weight) over (order by r.place))::bigint as until_here
                   from unnest($5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::bigint[]) with ordinality
                        as r (grant_id, weight, thread, note, deadline_us, place)) q
          where q.until_here <= (select f.free from f)),
     u as (
         update rowlock_lock p
            set used = p.used + b.weight, token = b.token, successor = null, changed_at = clock_timestamp()
           from (select sum(c.weight)::bigint as weight, max(f.token + c.place) as token
                   from c, f having count(*) > 0) b
          where p.name = $1::text)
insert into rowlock_hold (name, grant_id, session, weight, token, thread, note, acquired_at, deadline)
select $1::text, c.grant_id, $2::bigint, c.weight, f.token + c.place, c.thread, c.note, clock_timestamp(),
       clock_timestamp() + c.deadline_us::float8 * interval '1 microsecond'
  from c, f
returning grant_id, token

-- statement flush_commits
-- A commit that writes one record to the log and no table, and waits for the disk, and for a standby where
-- commits do: every commit of this server before it is as durable as it is when it returns. Needs no right.
select pg_catalog.pg_logical_emit_message(true, 'rowlock'::text, ''::text)

-- statement flush_taken_permits
-- `flush_commits` behind a take whose answer is still under way: nothing is written if nothing was taken.
-- $1 name  $2 my session  $3 the grant ids that were asked for
select pg_catalog.pg_logical_emit_message(true, 'rowlock'::text, ''::text)
 where exists (select from pg_catalog.unnest($3::bigint[]) as r (id)
                      cross join lateral (
                          select from rowlock_hold s
                           where s.name = $1::text and s.grant_id = r.id and s.session = $2::bigint offset 0) h)

-- statement give_permits
-- Ends one hold: deletes it and lowers the counter in one statement. It names the grant, so a second release
-- changes nothing. An upgrade ends with its hold, which is the only one. Hold first, counter second, as in sweep_permits: no grant waits for a hold, so no circle
-- closes. The commit is asynchronous ($4), for the reason of take_permits. If a crash loses it the hold is back, and
-- its client, whose connection broke, compares and ends it again: the next grant that a client learns of lies
-- behind it in the log. Behind a pooler the client may not notice the crash, so there the commit is durable.
-- Then check the queue (grant_counted).
-- $1 name  $2 my session  $3 grant id  $4 1 = asynchronously
-- → how many holds were ended, 1 or 0
with d as (
         delete from rowlock_hold s
          where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint
         returning s.weight),
     u as (
         update rowlock_lock p set used = p.used - d.weight, grant_id = null, changed_at = clock_timestamp()
           from d
          where p.name = $1::text
            and ($4::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
         returning 1)
select (select count(*) from d), (select count(*) from u)

-- statement give_permits_together
-- `give_permits` for several holds of one semaphore and session, by one commit: holds in the order of their keys, as
-- reclaim_permit, then the counter. Only holds that were never fenced are sent here, so no fenced transaction has locked
-- them. Each is looked up by its key, which OFFSET 0 ensures: by the session the server would step over all that it has
-- given back, until vacuum comes. All ids are in that range: it makes the planner expect one row, and delete by ctid
-- instead of reading a table that is small only now. One that was changed since this snapshot is locked as its newest version, whose ctid
-- the deletion does not find: it is left to give_permits.
-- $1 name  $2 my session  $3 grant ids  $4 1 = asynchronously
-- → the grant ids of the holds that were ended
with k as materialized (
         select h.place
           from (select r.id from pg_catalog.unnest($3::bigint[]) as r (id)
                   where r.id between 0 and 9223372036854775807 order by r.id) r
                cross join lateral (
                    select s.ctid as place from rowlock_hold s
                     where s.name = $1::text and s.grant_id = r.id and s.session = $2::bigint
                    offset 0 for update of s) h),
     d as (
         delete from rowlock_hold s using k where s.ctid = k.place
         returning s.grant_id, s.weight),
     u as (
         update rowlock_lock p
            set used = p.used - (select sum(d.weight)::bigint from d), grant_id = null, changed_at = clock_timestamp()
          where p.name = $1::text and exists (select from d)
            and ($4::int = 0 or set_config('synchronous_commit', 'off', true) = 'off'))
select d.grant_id from d

-- statement sweep_permits
-- Ends the holds of sessions that have ended or are gone, and those past their own deadline: a thousand at a
-- time. A dead session stays dead, and the lock judges a deadline again. Holds that another transaction has
-- locked are left for a later sweep. If a crash loses the commit, another sweep ends them again. Then check
-- the queue (grant_counted).
-- $1 name
-- → how many holds, how many permits
with k as materialized (
         select s.grant_id
           from rowlock_hold s left join rowlock_session m on m.id = s.session
          where s.name = $1::text and {hold_over}
          order by s.grant_id limit 1000 for update of s skip locked),
     d as (
         delete from rowlock_hold s using k
          where s.name = $1::text and s.grant_id = k.grant_id
         returning s.weight),
     u as (
         update rowlock_lock p
            set used = p.used - (select sum(d.weight)::bigint from d), grant_id = null, changed_at = clock_timestamp()
          where p.name = $1::text and exists (select from d)
            and set_config('synchronous_commit', 'off', true) = 'off'
         returning 1)
select (select count(*) from d), (select coalesce(sum(d.weight), 0)::bigint from d), (select count(*) from u)

-- statement upgrade_look
-- Whether a hold could be upgraded: it lives, and is the only one. Reads only; upgrade_lock decides.
-- $1 name  $2 my session  $3 grant id of the hold
-- → the lock's token, the token of the upgrade, the weight of the hold, whether that is all that is used, and nobody is
--   upgraded; no row if the hold has ended
select l.token, greatest(l.token, (select f.floor from rowlock_token_floor f)) + 1 + (l.successor is not null)::int,
       s.weight, (l.used = s.weight and l.session is null and not {upgraded(l)})::int
  from rowlock_hold s join rowlock_lock l on l.name = s.name join rowlock_session m on m.id = s.session
 where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint and not {hold_over} and {live}

-- statement upgrade_lock
-- Upgrades a hold: the lock's row names the upgrade, and has no room from then on. By compare-and-set on the token of the
-- look: since then nobody was granted anything, nor was anybody upgraded, so whoever is counted in `used` now was there at
-- the look; and there the hold was alone. Were it over, its weight would be missing; if it is being ended at this moment,
-- whoever ends it waits for this row, and ends the upgrade with it. No lock of the hold is needed, so a transaction that
-- has fenced it, most likely the caller's, is not waited for. Durable. A repetition changes nothing.
-- $1 name  $2 grant id of the upgrade  $3 the lock's token  $4 the token of the upgrade  $5 the weight of the hold
update rowlock_lock
   set grant_id = $2::bigint, token = $4::bigint, successor = null, changed_at = clock_timestamp()
 where name = $1::text and token = $3::bigint and used = $5::bigint and session is null and grant_id is null

-- statement end_upgrade
-- Ends an upgrade; its hold stays, with another weight if that is wanted. Nobody else has anything of the lock before the
-- commit, so there is room. Durable. Hold first, row second, so this waits while a transaction of the caller's that is fenced with
-- the hold works under the upgrade. The token rises, as with every change of what is held but its end, and is the hold's
-- if its weight changes: a shrink that comes late names an older one. A repetition of this changes nothing, nor one that
-- comes late: every upgrade has another id, also one that was reclaimed. Then check the queue.
-- $1 name  $2 grant id of the upgrade  $3 weight of its hold from now on, or NULL
-- → how many were ended, 1 or 0
with h as materialized (
         select s.grant_id, s.weight, coalesce($3::bigint, s.weight) as wanted
           from rowlock_hold s
          where s.name = $1::text
            and exists (select from rowlock_lock l
                         where l.name = $1::text and l.grant_id = $2::bigint and l.session is null)
            for no key update),
     u as (
         update rowlock_lock l
            set used = l.used - h.weight + h.wanted, grant_id = null, token = l.token + 1, changed_at = clock_timestamp()
           from h where l.name = $1::text and l.grant_id = $2::bigint and l.session is null
         returning l.token),
     c as (
         update rowlock_hold s set weight = h.wanted, token = u.token
           from h, u where s.name = $1::text and s.grant_id = h.grant_id and h.weight <> h.wanted)
select count(*) from u

-- statement drop_upgrade
-- As end_upgrade, of an upgrade in which no caller has ever believed: nobody works under it, so the hold is not locked, and a
-- transaction that is fenced with it, perhaps of the caller who asks for the upgrade again, is not waited for.
-- $1 name  $2 grant id of the upgrade
update rowlock_lock set grant_id = null, token = token + 1, changed_at = clock_timestamp()
 where name = $1::text and grant_id = $2::bigint and session is null

-- statement shrink_permits
-- Lowers how many permits a hold has, and the counter, in one statement, hold first, as give_permits. Durable: a
-- downgrade is rare, and a crash that lost it would leave the larger hold to a client that does not know of it. It
-- names the number before and the token, which is another if the number was ever raised (end_upgrade), so a second one
-- changes nothing. Then check the queue (grant_counted).
-- $1 name  $2 my session  $3 grant id  $4 permits before  $5 permits from now on  $6 token
-- → how many holds were changed, 1 or 0
with s as (
         update rowlock_hold s set weight = $5::bigint
          where s.name = $1::text and s.grant_id = $3::bigint and s.session = $2::bigint
            and s.weight = $4::bigint and s.token = $6::bigint
         returning 1),
     u as (
         update rowlock_lock p
            set used = p.used - ($4::bigint - $5::bigint), changed_at = clock_timestamp()
          where p.name = $1::text and exists (select from s)
         returning 1)
select (select count(*) from s), (select count(*) from u)

-- statement lower_lock
-- A sole grant becomes a hold of this weight, with its id, its token and all that its row says of it, a request for its
-- release among it. The row is the sole holder's, and locked: nobody else has anything of the lock, so there is room. A
-- fence of the grant has the row locked: then this waits. The token rises: whoever judged that holder dead finds another
-- one, and does not take the lock beside the hold. A promised token is passed over. Durable, as shrink_permits. A second
-- one changes nothing. Then check the queue (grant_counted).
-- $1 name  $2 my session  $3 grant id  $4 weight
-- → how many grants were changed, 1 or 0
with o as materialized (
         select l.grant_id, l.thread, l.note, l.deadline, l.token, l.acquired_at,
                coalesce(l.asked_for = l.grant_id, false) as asked, l.asked_by, l.reason
           from rowlock_lock l
          where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint and l.used = 0
            and not coalesce(l.deadline <= clock_timestamp(), false)
            and exists (select from rowlock_session m where m.id = $2::bigint and {live})
            for update of l),
     u as (
         update rowlock_lock l
            set session = null, grant_id = null, thread = null, note = null, acquired_at = null, deadline = null,
                used = $4::bigint, token = l.token + 1 + (l.successor is not null)::int, successor = null,
                changed_at = clock_timestamp()
           from o
          where l.name = $1::text),
     h as (
         insert into rowlock_hold (name, session, grant_id, weight, thread, note, deadline, token, acquired_at,
                                   requested, asked_by, reason)
         select $1::text, $2::bigint, o.grant_id, $4::bigint, o.thread, o.note, o.deadline, o.token, o.acquired_at,
                o.asked::int, case when o.asked then o.asked_by end, case when o.asked then o.reason end
           from o)
select count(*) from o

-- statement hold_to_end
-- The hold that a token names, its own or that of its upgrade, for an operator who ends it. Reads only.
-- $1 name  $2 token
-- → session, grant id
select s.session, s.grant_id
  from rowlock_hold s left join rowlock_lock l on l.name = s.name left join rowlock_session m on m.id = s.session
 where s.name = $1::text and (s.token = $2::bigint or l.token = $2::bigint and {upgraded(l)}) and not {hold_over}

-- statement lock_permit
-- Locks a hold, by primary key. Hold first, then session, as with leases (docs/adr/0010).
-- $1 name  $2 grant id  $3 session
-- → whether another client has asked for its release
select s.requested from rowlock_hold s
 where s.name = $1::text and s.grant_id = $2::bigint and s.session = $3::bigint
   for update

-- statement shorten_permit
-- Sets the deadline of a hold to the time at which its session would expire without another heartbeat, or to so long from
-- now, whichever is later, unless that ends before, and marks it. Never later than it was. The transaction has locked the
-- hold, and then the session by bump_revision: as shorten_lease. An upgrade, also one that is committed later, ends with it.
-- $1 name  $2 grant id  $3 session  $4 how long from now, in µs  $5 who asks, or NULL: the holder gives it up at once
-- $6 why
update rowlock_hold s
   set deadline = least(s.deadline, greatest(m.expires_at, clock_timestamp() + $4::bigint::float8 * interval '1 microsecond')),
       requested = 1, asked_by = $5::text, reason = $6::text
  from rowlock_session m
 where s.name = $1::text and s.grant_id = $2::bigint and s.session = $3::bigint and m.id = $3::bigint

-- statement end_permit
-- Ends a hold from outside: from the commit on every fence of it fails and every judgement finds it over (hold_over), and
-- any client may sweep it. A fence has the row locked: then this waits for that transaction. The hold is locked before
-- (lock_permit), and bump_revision follows. 'epoch' says that it was ended by force. An upgrade, also one that is committed
-- later, ends with its hold. The note becomes who did it: a history records it.
-- $1 name  $2 grant id  $3 session  $4 by whom, or NULL
update rowlock_hold s set deadline = 'epoch', note = coalesce($4::text, s.note)
 where s.name = $1::text and s.grant_id = $2::bigint and s.session = $3::bigint

-- statement set_capacity
-- Changes how many permits a semaphore has; less than `used` is allowed. Durable. Then check the queue (grant_counted).
-- $1 name  $2 capacity
update rowlock_lock p set capacity = $2::bigint where p.name = $1::text and p.capacity is not null

-- statement create_semaphore
-- Makes a semaphore of a lock that nobody holds or waits for: the write judges the row's own columns under its lock. The
-- token rises, so whoever judged it free before finds another one; a promised token is passed over. A ticket that is
-- committed after this snapshot is not seen: its client finds, by its next look, what the name has become.
-- $1 name  $2 capacity
update rowlock_lock l
   set capacity = $2::bigint,
       token = greatest(l.token, (select f.floor from rowlock_token_floor f)) + 1 + (l.successor is not null)::int,
       successor = null, changed_at = clock_timestamp()
 where l.name = $1::text and l.capacity is null and l.session is null and l.used = 0
   and not exists (select from rowlock_ticket w where w.name = $1::text)

-- statement semaphore_state
-- How a lock stands, for a counted take; reads only.
-- $1 name  $2 my session
-- → capacity (NULL: modes) and used (NULL: it has no row); whether my session lives, whether a live session waits,
--   whether the row names a sole holder, alive or not; its session, its grant id, whether its client may keep the lock
--   after its release
select l.capacity, l.used,
       (select count(*) from rowlock_session m where m.id = $2::bigint and {live}),
       {waited_at(l)}::int, (l.session is not null)::int, l.session, l.grant_id,
       coalesce(l.grant_id in (l.retained, - l.retained), false)::int
  from (values (1)) as one left join rowlock_lock l on l.name = $1::text

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

-- statement permit_holders
-- Whether what the holders of a lock have is to be taken back, or when; reads only.
-- $1 name
-- → whether a session with counted holds has expired, but is not ended; whether there are counted holds that have ended
--   (sweep_permits); until the next of the others ends without a heartbeat, in µs, NULL: none; room, NULL: no row;
--   of a sole holder: its session, the row's token, whether it has ended (clear_sole), whether its session has expired,
--   its remaining time in µs, its grant id, whether its client may keep the lock after its release
select h.expired, h.over, h.next, l.room, l.session, l.token, l.gone, l.expired, l.remaining, l.grant_id, l.retained
  from (select coalesce(bool_or(not m.ended and m.expires_at <= clock_timestamp()), false)::int as expired,
               coalesce(bool_or({hold_over}), false)::int as over,
               {until(min(least(m.expires_at, s.deadline))
                      filter (where not {hold_over} and m.expires_at > clock_timestamp()))} as next
          from rowlock_hold s left join rowlock_session m on m.id = s.session
         where s.name = $1::text) h
       left join (select {room(l)} as room, l.session, l.token, {holder_gone}::int as gone,
                         coalesce(s.expires_at <= clock_timestamp(), false)::int as expired,
                         {until(least(s.expires_at, l.deadline))} as remaining, l.grant_id,
                         coalesce(l.grant_id in (l.retained, - l.retained), false)::int as retained
                    from rowlock_lock l left join rowlock_session s on s.id = l.session
                   where l.name = $1::text) l on true

-- statement expired_holders
-- Some of the sessions that hold permits of a semaphore and have expired, but are not ended; reads only. Each is
-- ended by a conditional write of its own, before its permits may be taken back (I3).
-- $1 name
select distinct m.id
  from rowlock_hold s join rowlock_session m on m.id = s.session
 where s.name = $1::text and not m.ended and m.expires_at <= clock_timestamp()
 limit 64

-- statement permits_of
-- The holds of a session, to compare a holder's belief with the table. By the index on session, reads only.
-- $1 session
-- → name, grant id, token, what is left of its own deadline in µs, or NULL, whether it was ended by force, permits,
--   whether another client has asked for its release; who did so within a time, or NULL, and why; if it is upgraded, the
--   grant id and the token of that
select s.name, s.grant_id, s.token,
       {until(s.deadline)},
       coalesce(s.deadline = 'epoch', false)::int, s.weight, s.requested,
       s.asked_by, s.reason, l.grant_id, l.token
  from rowlock_hold s left join rowlock_lock l on l.name = s.name and {upgraded(l)}
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
having coalesce(max(p.used), 0) <> sum(s.weight)::bigint or bool_or({hold_over})
union all
select p.name, case when p.used = 0 then 1 else p.used end from rowlock_lock p
 where p.name > $1::text and (p.used <> 0 or {upgraded(p)}) and not exists (select from rowlock_hold s where s.name = p.name)
 order by 1 limit $2::bigint

-- statement lock_semaphore
-- Locks a counter. In the next statement of the transaction no take and no grant is under way, and a give that is
-- has not lowered the counter: its hold is still seen.
-- $1 name
select p.used from rowlock_lock p where p.name = $1::text for update

-- statement correct_counter
-- Sets a counter to the sum of its holds. The transaction has locked it before (lock_semaphore): the snapshot of
-- this statement is younger than the lock.
-- $1 name
update rowlock_lock p
   set used = (select coalesce(sum(s.weight), 0)::bigint from rowlock_hold s where s.name = $1::text),
       grant_id = case when p.session is not null or exists (select from rowlock_hold s where s.name = $1::text) then p.grant_id end
 where p.name = $1::text
   and (p.used <> (select coalesce(sum(s.weight), 0)::bigint from rowlock_hold s where s.name = $1::text)
        or {upgraded(p)} and not exists (select from rowlock_hold s where s.name = $1::text))

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
with h as materialized (
         (select s.session, s.grant_id, s.thread, s.note, s.acquired_at, s.deadline, {weight_of(s)} as weight,
                 {token_of(s)} as token, s.token as first_token
            from rowlock_hold s join rowlock_session m on m.id = s.session
           where s.name = $1::text and not {hold_over}
           order by s.token limit $2::bigint)
         union all
         select l.session, l.grant_id, l.thread, l.note, l.acquired_at, l.deadline, 1999999999, l.token, l.token
           from rowlock_lock l join rowlock_session s on s.id = l.session
          where l.name = $1::text and not {holder_gone})
select h.session, h.grant_id, m.owner, m.host, m.program, h.thread, h.note, m.pid,
       {since(h.acquired_at)},
       {until(least(m.expires_at, h.deadline))},
       h.weight, h.token, h.first_token
  from h join rowlock_session m on m.id = h.session
 order by h.first_token limit $2::bigint

-- statement extend_permit
-- Sets a hold's own deadline to so long from now, unless that has passed. The transaction has locked the hold
-- (lock_permit), and has then read that its client knows every change of its session's rows: a request for this
-- release locks the hold before it raises the revision, so one that came first has been seen, and one that comes later
-- shortens this deadline. Never earlier than it was, and always a change: the commit makes an earlier one, whose reply was
-- lost, durable.
-- $1 name  $2 grant id  $3 session  $4 how long from now, in µs
update rowlock_hold s
   set deadline = greatest(s.deadline + interval '1 microsecond',
                           clock_timestamp() + $4::bigint::float8 * interval '1 microsecond')
 where s.name = $1::text and s.grant_id = $2::bigint and s.session = $3::bigint
   and s.deadline > clock_timestamp() and s.requested = 0

-- statement raise_counter_token
-- Draws a token for a hold that is reclaimed. Locks the counter, behind the hold, as a release does. An upgrade gets another
-- grant id: one that the predecessor's client ends late is not ours.
-- $1 name
update rowlock_lock p
   set token = greatest(p.token, (select f.floor from rowlock_token_floor f)) + 1 + (p.successor is not null)::int,
       grant_id = p.grant_id + 1, successor = null, changed_at = clock_timestamp()
 where p.name = $1::text

-- statement reclaim_permit
-- Moves a hold of a predecessor, ended in this transaction, to our session, with the token drawn before. The transaction
-- has locked the hold (lock_permit). Not one that is over, by its deadline or by force, nor one that another client has
-- asked for. Its thread is of another process.
-- $1 name  $2 grant id  $3 the predecessor's session  $4 my session
update rowlock_hold s
   set session = $4::bigint, token = p.token, acquired_at = clock_timestamp(), thread = null
  from rowlock_lock p
 where s.name = $1::text and s.grant_id = $2::bigint and s.session = $3::bigint and p.name = $1::text
   and not coalesce(s.deadline <= clock_timestamp(), false) and s.requested = 0
   and exists (select from rowlock_session m where m.id = $4::bigint and {live})

-- statement wrong_counters
-- The locks whose `used` is not the sum of their holds, which should never be, for a person. One snapshot, reads only.
-- → how many locks have counted holds or a capacity; how many are wrong; the first of these
with counted as materialized (
         select p.name, p.used from rowlock_lock p where p.used <> 0 or p.capacity is not null
         union
         select s.name, coalesce((select p.used from rowlock_lock p where p.name = s.name), 0) from rowlock_hold s),
     wrong as materialized (
         select c.name from counted c
          where c.used <> (select coalesce(sum(s.weight), 0)::bigint from rowlock_hold s where s.name = c.name))
select (select count(*) from counted), (select count(*) from wrong),
       (select w.name from wrong w order by w.name limit 1)
