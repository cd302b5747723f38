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

-- statement permit_holders
-- Whether what the holders of a lock have is to be taken back, or when; reads only.
-- $1 name
-- → whether a session with counted holds has expired, but is not ended; whether there are counted holds that have ended
--   (sweep_permits); until the next of the others ends without a heartbeat, in µs, NULL: none; room, NULL: no row;
--   of a sole holder: its session, the row's token, whether it has ended (clear_sole), whether its session has expired,
--   its remaining time in µs
select h.expired, h.over, h.next, l.room, l.session, l.token, l.gone, l.expired, l.remaining
  from (select coalesce(bool_or(not m.ended and m.expires_at <= clock_timestamp()), false)::int as expired,
               coalesce(bool_or({hold_over}), false)::int as over,
               {until(min(least(m.expires_at, s.deadline))
                      filter (where not {hold_over} and m.expires_at > clock_timestamp()))} as next
          from rowlock_hold s left join rowlock_session m on m.id = s.session
         where s.name = $1::text) h
       left join (select {room(l)} as room, l.session, l.token, {holder_gone}::int as gone,
                         coalesce(s.expires_at <= clock_timestamp(), false)::int as expired,
                         {until(least(s.expires_at, l.deadline))} as remaining
                    from rowlock_lock l left join rowlock_session s on s.id = l.session
                   where l.name = $1::text) l on true

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
