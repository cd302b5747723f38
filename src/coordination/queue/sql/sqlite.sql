-- statement enqueue
-- Adds a queue entry. One writer: tickets become visible in the order in which they are drawn.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
insert into rowlock_waiter (name, session, grant_id, thread, note, deadline_us, enqueued_at)
values ($1, $2, $3, $4, $5, $6, {now})
on conflict (grant_id) do nothing

-- statement cancel
-- Cancels queue entries.
-- $1 … $16 grant ids; may repeat
-- → the grant ids whose tickets this call deleted
delete from rowlock_waiter
 where grant_id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
returning grant_id

-- statement delete_waiter
-- Removes a ticket that was served.
-- $1 ticket
delete from rowlock_waiter where ticket = $1

-- statement places
-- All queue entries of a session, in one snapshot; reads only. Positions are counted once for each queue, not
-- once for each entry: a thousand entries in one queue are one pass over it.
-- $1 my session
-- → whether my session lives; name, grant id, ticket, position (0: my session is dead), whether the
--   lease may be granted, its session, whether that has expired, what is left of it in µs. One row
--   with NULLs if there is no entry.
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

-- statement deadlocks
-- The data for a search for deadlock cycles, in one snapshot; reads only. The parties are pairs of session
-- and thread label; a holder or waiter without a label takes no part.
--
-- `reach` is the set of names that our entries lead to: from a name to what its holder waits for, and to what
-- the waiters in its queue wait for besides. It stops growing where no new name is found, also among cycles
-- without us. Of a queue only waiters that can be in a cycle come back: they hold something here, or have
-- more than one entry. The caller decides what is a cycle, and which entry gives way.
-- $1 my session
-- → name; its holder's or waiter's: ticket (NULL: the holder), grant id, session, thread, note, host,
--   program, process id
with recursive reach (name) as (
         select w.name from rowlock_waiter w where w.session = $1 and w.thread is not null
         union
         select o.name
           from reach r cross join rowlock_lease l cross join rowlock_waiter o
          where l.name = r.name and o.session = l.session and o.thread = l.thread
         union
         select o.name
           from reach r cross join rowlock_waiter w cross join rowlock_waiter o
          where w.name = r.name and o.session = w.session and o.thread = w.thread),
     holder as (
         select l.name, l.session, l.thread, l.note, s.host, s.program, s.pid
           from reach r cross join rowlock_lease l cross join rowlock_session s
          where l.name = r.name and s.id = l.session and l.thread is not null and not {free})
select h.name, null, null, h.session, h.thread, h.note, h.host, h.program, h.pid
  from holder h
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, m.host, m.program, m.pid
  from reach r cross join rowlock_waiter w cross join rowlock_session m
 where w.name = r.name and m.id = w.session and {live}
   and (exists (select 1 from holder h where h.session = w.session and h.thread = w.thread)
        or exists (select 1 from rowlock_waiter o
                    where o.session = w.session and o.thread = w.thread and o.ticket <> w.ticket))

-- statement queue
-- The live waiters of one name, for people, in the order in which they will be served. Reads only.
-- $1 name
-- → ticket, session, owner, host, program, thread, note, pid, µs waited
select w.ticket, w.session, m.owner, m.host, m.program, w.thread, w.note, m.pid,
       {now} - w.enqueued_at
  from rowlock_waiter w cross join rowlock_session m
 where w.name = $1 and m.id = w.session and {live}
 order by w.ticket

-- statement next_waiter
-- Reads a lease and the first live ticket of its queue, in one snapshot; locks nothing. The lease is granted
-- to that ticket by compare-and-set on the token read here.
-- $1 name
-- → the token a grant would carry; whether the lease has a row, its token, whether it is free, its
--   session, its grant id; the ticket, its session, grant id, thread, note, deadline in µs, and its
--   session's wake-up address, secret and mailbox, or NULLs
select max(coalesce(l.token, 0), f.floor) + 1,
       l.name is not null, l.token, {free}, l.session, l.grant_id,
       w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
       w.wake_address, w.wake_secret, w.mailbox
  from rowlock_token_floor f
       left join rowlock_lease l on l.name = $1
       left join rowlock_session s on s.id = l.session
       left join (select o.ticket, o.session, o.grant_id, o.thread, o.note, o.deadline_us,
                         m.wake_address, m.wake_secret, m.mailbox
                    from rowlock_waiter o cross join rowlock_session m
                   where o.name = $1 and m.id = o.session and {live}
                   order by o.ticket limit 1) w on 1 = 1
 where f.id = 1

-- statement release_unwaited
-- Frees a lease if it is still this very grant and has no live waiter. One writer: a client that enqueues
-- afterwards finds it free. No row changed: not this grant, or there is a waiter.
-- $1 name  $2 my session  $3 grant id
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3
   and not exists (select 1 from rowlock_waiter w cross join rowlock_session m
                    where w.name = $1 and m.id = w.session and {live})

-- statement dead_places
-- How many entries there are in all queues, and how many of them belong to dead sessions: those block no
-- waiter, and the reaper removes them. For people; reads only.
select count(*),
       count(*) - (select count(*) from rowlock_waiter w join rowlock_session m on m.id = w.session
                    where {live})
  from rowlock_waiter
