-- All places of a session, in one snapshot; reads only. Positions are counted once for each queue, not
-- once for each place: a thousand places in one queue are one pass over it.
-- $1 my session
-- → whether my session lives; name, grant id, ticket, position (0: my session is dead), whether the
--   lease may be granted, its session, whether that has expired, what is left of it in µs. One row
--   with NULLs if there is no place.
select (select count(*) from rowlock_session m where m.id = $1 and {live}),
       mine.name, mine.grant_id, mine.ticket, coalesce(q.place, 0),
       {free}, l.session, coalesce(s.expires_at <= {now}, 0) and not {free},
       case when {free} then 0
            else coalesce(min(s.expires_at, l.deadline), s.expires_at) - {now} end
  from (select 1 as one) as one
       left join rowlock_waiter mine on mine.session = $1
       left join rowlock_lease l on l.name = mine.name
       left join rowlock_session s on s.id = l.session
       left join (select w.ticket,
                         row_number() over (partition by w.name order by w.ticket) as place
                    from (select distinct o.name from rowlock_waiter o where o.session = $1) n
                         cross join rowlock_waiter w cross join rowlock_session m
                   where w.name = n.name and m.id = w.session and {live}) q
              on q.ticket = mine.ticket
 order by mine.ticket
