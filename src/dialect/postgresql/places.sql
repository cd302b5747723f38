-- All places of a session, in one snapshot; reads only. Positions are counted once for each queue, not
-- once for each place: a thousand places in one queue are one pass over it.
-- $1 my session
-- → whether my session lives; name, grant id, ticket, position (0: my session is dead), whether the
--   lease may be granted, its session, whether that has expired, what is left of it in µs. One row
--   with NULLs if there is no place.
with mine as materialized (
         select w.name, w.grant_id, w.ticket from rowlock_waiter w where w.session = $1::bigint),
     queue as materialized (
         select n.name from (select distinct mine.name from mine) n),
     place as materialized (
         select q.ticket, q.position
           from queue, lateral (
                select w.ticket, row_number() over (order by w.ticket) as position
                  from rowlock_waiter w join rowlock_session m on m.id = w.session
                 where w.name = queue.name and {live}) q),
     lease as materialized (
         select queue.name, {free} as free, l.session,
                coalesce(s.expires_at <= clock_timestamp(), false) as expired,
                least(s.expires_at, l.deadline) - clock_timestamp() as remaining
           from queue left join rowlock_lease l on l.name = queue.name
                left join rowlock_session s on s.id = l.session)
select (select count(*) from rowlock_session m where m.id = $1::bigint and {live}),
       mine.name, mine.grant_id, mine.ticket, coalesce(place.position, 0),
       lease.free::int, lease.session, (lease.expired and not lease.free)::int,
       case when lease.free then 0
            else coalesce((extract(epoch from lease.remaining) * 1000000)::bigint, 0) end
  from (values (1)) as one
       left join mine on true
       left join lease on lease.name = mine.name
       left join place on place.ticket = mine.ticket
 order by mine.ticket
