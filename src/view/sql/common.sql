-- What `rowlock serve` shows. Each statement reads one snapshot, at most $1 rows of it, and locks nothing. Together they
-- are no snapshot: a page for people, on which no decision rests. Times are µs since the epoch by the database's clock.

-- statement overview_now
-- → the database's clock
select {now}

-- statement overview_leases
-- The leases that are not free. One whose session has expired still keeps others out until a taker ends that session.
-- → name, session, grant id, owner, host, program, pid, thread, note, acquired at, own deadline, whether its session has
--   expired, by whom and why its release was asked for within a time; token
select l.name, l.session, l.grant_id, s.owner, s.host, s.program, s.pid, l.thread, l.note,
       {micros(l.acquired_at)}, {micros(l.deadline)}, (s.expires_at <= {now})::int,
       case when l.asked_for = l.grant_id then coalesce(l.asked_by, '') end, l.reason, l.token
  from rowlock_lock l {join} rowlock_session s
 where s.id = l.session and not {holder_gone}
 order by l.name limit $1::bigint

-- statement overview_permits
-- The holds of semaphores and shared_mutexes that are not over.
-- → as overview_leases; then the kind (0 semaphores, 1 shared_mutexes), permits
select s.name, s.session, s.grant_id, m.owner, m.host, m.program, m.pid, s.thread, s.note,
       {micros(s.acquired_at)}, {micros(s.deadline)}, (m.expires_at <= {now})::int, s.asked_by, s.reason, {token_of(s)},
       {is_mode(s)}, {weight_of(s)}
  from rowlock_hold s {join} rowlock_session m
 where m.id = s.session and not {hold_over}
 order by s.name, s.token limit $1::bigint

-- statement overview_queues
-- The live entries in the queues, those of leases first, each queue in the order in which it is served.
-- → name, session, grant id, owner, host, program, pid, thread, note, enqueued at, priority, how many locks it is for, the
--   kind (0 semaphores, 1 shared_mutexes, NULL leases), weight
select w.name, w.session, w.grant_id, m.owner, m.host, m.program, m.pid, w.thread, w.note, {micros(w.enqueued_at)}, w.priority,
       w.members, {kind_of(w)}, w.weight
  from rowlock_ticket w {join} rowlock_session m
 where m.id = w.session and {live}
 order by w.weight is not null, w.name, w.priority desc, w.ticket limit $1::bigint

-- statement overview_semaphores
-- The semaphores of which permits are used, perhaps by dead holders, or waited for.
-- → name, capacity, permits of live holders, all that the counter has as used
select p.name, p.capacity, {live_permits}, p.used
  from rowlock_lock p
 where p.capacity is not null
   and (p.used > 0
        or exists (select 1 from rowlock_ticket w {join} rowlock_session m
                    where w.name = p.name and m.id = w.session and {live}))
 order by p.name limit $1::bigint

-- statement overview_expired_permits
-- The permits that dead holders keep: of sessions that have expired, and of holds that are over. They count as used until
-- the next taker or a reaper gives them back.
-- → name, kind (0 semaphores, 1 shared_mutexes), permits
select s.name, {is_mode(s)}, sum(s.weight)::bigint
  from rowlock_hold s left join rowlock_session m on m.id = s.session
 where {hold_over} or m.expires_at <= {now}
 group by s.name
 order by s.name limit $1::bigint

-- statement overview_sessions
-- The sessions that have not ended.
-- → id, owner, host, program, pid, opened at, ttl in µs, expires at, heartbeats
select m.id, m.owner, m.host, m.program, m.pid,
       {micros(m.opened_at)}, m.ttl_us,
       {micros(m.expires_at)}, m.beats
  from rowlock_session m where not m.ended order by m.id limit $1::bigint

-- statement overview_waits
-- The holders and waiters of all locks that are waited for, to find deadlock cycles: as `deadlocks`, for all sessions at
-- once. Thread NULL: of a client that takes no part in the search.
-- → as deadlocks
select l.name, null::bigint, l.grant_id, l.session, l.thread, l.note, s.host, s.program, s.pid, null::bigint, 0::bigint,
       null::bigint, null::text
  from rowlock_lock l {join} rowlock_session s
 where l.name in (select q.name from rowlock_ticket q) and s.id = l.session and l.thread is not null and not {holder_gone}
union all
select s.name, null, s.grant_id, s.session, s.thread, s.note, m.host, m.program, m.pid, {weight_of(s)}, 0, null, null
  from rowlock_hold s {join} rowlock_session m
 where {is_mode(s)} = 1 and s.name in (select q.name from rowlock_ticket q) and s.thread is not null
   and m.id = s.session and not {hold_over}
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, m.host, m.program, m.pid, w.weight,
       {micros(w.enqueued_at)}, w.base, w.blocks
  from rowlock_ticket w {join} rowlock_session m
 where {is_mode(w)} = 1 and w.thread is not null and m.id = w.session and {live}

-- statement history_session_end
-- How a session ended, as the history recorded it: among the records without a name, by the index on (name, id).
-- $1 session  $2 after which record
-- → kind, when, its last expiry
select h.kind, {micros(h.at)}, {micros(h.ends_at)}
  from rowlock_history h
 where h.name is null and h.id operator(pg_catalog.>) $2::bigint and h.session operator(pg_catalog.=) $1::bigint
   and (h.kind operator(pg_catalog.=) 'session_ended' or h.kind operator(pg_catalog.=) 'session_expired')
 order by h.id limit 1
