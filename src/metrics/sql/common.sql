-- What `rowlock metrics` and `rowlock doctor` count. Each statement reads one snapshot, locks nothing, and reads
-- a table once from end to end: nothing in the tables counts for them, as that would be a row that every acquire
-- writes. A row is counted in the state that it is in by the database's clock.

-- statement lease_totals
-- How many locks without counted holds there are, held and free, but for semaphores; and of those that are held, how many
-- have a live holder, and one whose session has expired. A free row costs no look at a session.
-- → names, held, expired
select count(*),
       pg_catalog.count(case when not {holder_gone} and s.expires_at > {now} then 1 end),
       pg_catalog.count(case when not {holder_gone} and s.expires_at <= {now} then 1 end)
  from rowlock_lock l left join rowlock_session s on s.id = l.session
 where l.used = 0 and l.capacity is null

-- statement queue_totals
-- The entries in the queues of leases, semaphores and shared_mutexes: those of live sessions, those of dead ones,
-- which block no waiter and which the reaper deletes, and how long the oldest live one has waited, in µs. A request
-- for several locks has an entry in each of their queues.
-- → for each kind of lock that has entries (-1 leases, 0 semaphores, 1 shared_mutexes): kind, live, dead, oldest
select e.kind, count(case when e.live then 1 end), count(*) - count(case when e.live then 1 end),
       coalesce({since(min(case when e.live then e.enqueued_at end))}, 0)
  from (select coalesce({kind_of(w)}, -1) as kind, {live} as live, w.enqueued_at
          from rowlock_ticket w left join rowlock_session m on m.id = w.session) e
 group by e.kind

-- statement permit_totals
-- The semaphores and shared_mutexes, and their holds: those that are alive, and those that are over (their session
-- or their own deadline) and still keep others out.
-- → for each kind (0 semaphores, 1 shared_mutexes): kind, held, expired, names, capacity, permits of live holders
select 0, count(case when not {hold_over} and m.expires_at > {now} then 1 end),
       count(*) - count(case when not {hold_over} and m.expires_at > {now} then 1 end),
       (select count(*) from rowlock_lock p where p.capacity is not null),
       (select coalesce(sum(p.capacity), 0) from rowlock_lock p),
       coalesce(sum(case when not {hold_over} and m.expires_at > {now} then s.weight end), 0)
  from rowlock_hold s left join rowlock_session m on m.id = s.session
 where {is_mode(s)} = 0
union all
select 1, count(case when not {hold_over} and m.expires_at > {now} then 1 end),
       count(*) - count(case when not {hold_over} and m.expires_at > {now} then 1 end),
       (select count(*) from rowlock_lock p where p.capacity is null and p.used <> 0), 0, 0
  from rowlock_hold s left join rowlock_session m on m.id = s.session
 where {is_mode(s)} = 1

-- statement reaper_age
-- How long ago a reaper last ended a round, in µs.
-- → NULL: none has
select {since(f.reaped_at)}
  from rowlock_token_floor f where f.id = 1

-- statement session_totals
-- The sessions by state, and how long ago the first of the expired ones expired, in µs. A client that meets an expired
-- session ends it; a reaper meets all of them.
-- → live, expired, ended, oldest
select pg_catalog.count(case when not m.ended and m.expires_at > {now} then 1 end),
       pg_catalog.count(case when not m.ended and m.expires_at <= {now} then 1 end),
       pg_catalog.count(case when m.ended then 1 end),
       coalesce({since(min(case when not m.ended and m.expires_at <= {now} then m.expires_at end))}, 0)
  from rowlock_session m
