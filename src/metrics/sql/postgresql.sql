-- Those of common.sql that compute with times, whose type is not a number here.

-- statement queue_totals
-- The entries in the queues of leases, semaphores and shared_mutexes: those of live sessions, those of dead ones,
-- which block no waiter and which the reaper deletes, and how long the oldest live one has waited, in µs. A request
-- for several locks has an entry in each of their queues.
-- → for each kind of lock (-1 leases, 0 semaphores, 1 shared_mutexes): kind, live, dead, oldest
with entry as materialized (
         select -1 as kind, w.enqueued_at, {live} as live
           from rowlock_waiter w left join rowlock_session m on m.id = w.session
         union all
         select w.kind, w.enqueued_at, {live}
           from rowlock_permit_waiter w left join rowlock_session m on m.id = w.session)
select k.kind, count(case when e.live then 1 end), count(e.kind) - count(case when e.live then 1 end),
       coalesce((extract(epoch from clock_timestamp() - min(case when e.live then e.enqueued_at end))
                 operator(pg_catalog.*) 1000000)::bigint, 0)
  from (values (-1), (0), (1)) as k (kind) left join entry e on e.kind = k.kind
 group by k.kind

-- statement session_totals
-- The sessions by state, and how long ago the first of the expired ones expired, in µs. A client that meets an
-- expired session ends it; a reaper meets all of them.
-- → live, expired, ended, oldest
select count(case when not m.ended and m.expires_at > clock_timestamp() then 1 end),
       count(case when not m.ended and m.expires_at <= clock_timestamp() then 1 end),
       count(case when m.ended then 1 end),
       coalesce((extract(epoch from clock_timestamp()
                         - min(case when not m.ended and m.expires_at <= clock_timestamp() then m.expires_at end))
                 operator(pg_catalog.*) 1000000)::bigint, 0)
  from rowlock_session m
