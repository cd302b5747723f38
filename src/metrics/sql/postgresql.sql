-- Those of common.sql, with times whose type is not a number. FILTER, as count(expression) could be a function of
-- another schema.

-- statement queue_totals
-- The entries in the queues of leases, semaphores and shared_mutexes: those of live sessions, those of dead ones,
-- which block no waiter and which the reaper deletes, and how long the oldest live one has waited, in µs. A request
-- for several locks has an entry in each of their queues.
-- → for each kind of lock (-1 leases, 0 semaphores, 1 shared_mutexes): kind, live, dead, oldest
with entry as materialized (
         select coalesce({kind_of(w)}, -1) as kind, w.enqueued_at, coalesce({live}, false) as live
           from rowlock_ticket w left join rowlock_session m on m.id = w.session)
select k.kind, count(*) filter (where e.live), count(*) filter (where not e.live),
       coalesce({since(min(e.enqueued_at) filter (where e.live))}, 0)
  from (values (-1), (0), (1)) as k (kind) left join entry e on e.kind = k.kind
 group by k.kind

-- statement permit_totals
-- The semaphores and shared_mutexes, and their holds: those that are alive, and those that are over (their session
-- or their own deadline) and still keep others out.
-- → for each kind (0 semaphores, 1 shared_mutexes): kind, held, expired, names, capacity, permits of live holders
with hold as materialized (
         select {is_mode(s)} as kind, s.weight,
                coalesce(not {hold_over} and m.expires_at > clock_timestamp(), false) as alive
           from rowlock_hold s left join rowlock_session m on m.id = s.session)
select k.kind,
       (select count(*) from hold h where h.kind = k.kind and h.alive),
       (select count(*) from hold h where h.kind = k.kind and not h.alive),
       (select count(*) from rowlock_lock p
         where case k.kind when 0 then p.capacity is not null else p.capacity is null and p.used <> 0 end),
       (select coalesce(sum(p.capacity), 0)::bigint from rowlock_lock p where k.kind = 0),
       (select coalesce(sum(h.weight), 0)::bigint from hold h where h.kind = 0 and k.kind = 0 and h.alive)
  from (values (0), (1)) as k (kind)

-- statement notification_totals
-- How full the queue of notifications is, which is one for all databases of the server, in millionths; and the oldest
-- transaction of another client in any of them. The server does not show who listens: if the queue is long, a
-- session that does has not ended its transaction, and that is most likely this one. A role without
-- pg_read_all_stats sees the transactions of its own role alone.
-- → millionths; the transaction's process, database, role, and µs since it began, or NULLs
select (pg_catalog.pg_notification_queue_usage() operator(pg_catalog.*) 1000000::float8)::bigint,
       a.pid, a.datname, a.usename,
       (extract(epoch from clock_timestamp() - a.xact_start) operator(pg_catalog.*) 1000000)::bigint
  from (values (1)) as one
       left join lateral (
           select b.pid, b.datname, b.usename, b.xact_start from pg_catalog.pg_stat_activity b
            where b.xact_start is not null and b.pid <> pg_catalog.pg_backend_pid()
              and b.backend_type = 'client backend'::text
            order by b.xact_start limit 1) a on true
