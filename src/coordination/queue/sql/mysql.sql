-- statement enqueue
-- Adds a queue entry. The waiter table alone is touched: the holder's fenced transaction may lock the lease's
-- row for long. The ticket is drawn before it commits, so overlapping enqueues may become visible in either
-- order; one that was answered before another was sent has the lower ticket (except on Galera, where each
-- node draws from numbers of its own).
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
insert into rowlock_waiter (name, session, grant_id, thread, note, deadline_us, enqueued_at)
values ($1, $2, $3, $4, $5, $6, {now})

-- statement tickets
-- The tickets of queue entries, to be deleted by primary key: by grant id that deadlocks with enqueuers.
-- $1 … $16 grant ids; may repeat
-- → grant id, ticket
select w.grant_id, w.ticket from rowlock_waiter w
 where w.grant_id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
 order by w.ticket

-- statement delete_waiter
-- Removes a ticket, by primary key: by another key this deadlocks with enqueuers.
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
            else coalesce(least(s.expires_at, l.deadline), s.expires_at) - {now} end
  from (select 1 as one) as one
       left join rowlock_waiter mine on mine.session = $1
       left join rowlock_lease l on l.name = mine.name
       left join rowlock_session s on s.id = l.session
       left join (select w.ticket,
                         row_number() over (partition by w.name order by w.ticket) as place
                    from (select distinct o.name from rowlock_waiter o where o.session = $1) n
                         straight_join rowlock_waiter w straight_join rowlock_session m
                   where w.name = n.name and m.id = w.session and {live}) q
              on q.ticket = mine.ticket
 order by mine.ticket

-- statement served_of
-- Which leases of these names are grants of a session. By primary key, reads only.
-- $1 my session  $2 … $17 names; may repeat
-- → grant id, token, what is left of its own deadline in µs, or NULL
select l.grant_id, l.token, l.deadline - {now}
  from rowlock_lease l
 where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.session = $1

-- statement woken_for
-- Which leases of these names are grants of a session: what it was woken for. By primary key, reads only;
-- other clients' commits are seen before they are on disk. A client that has committed a grant holds a
-- user-level lock, rowlock_told_…, from the return of its COMMIT on (coordination/wakeup/wake_up.hpp): a
-- grant whose lock is held is durable.
-- $1 my session  $2 … $17 names; may repeat
-- → grant id, token, what is left of its own deadline in µs, or NULL; whether it is known to be durable
select l.grant_id, l.token, l.deadline - {now},
       is_used_lock(concat('rowlock_told_', l.grant_id)) is not null
  from rowlock_lease l
 where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.session = $1

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
           from reach r straight_join rowlock_lease l straight_join rowlock_waiter o
          where l.name = r.name and o.session = l.session and o.thread = l.thread
         union
         select o.name
           from reach r straight_join rowlock_waiter w straight_join rowlock_waiter o
          where w.name = r.name and o.session = w.session and o.thread = w.thread),
     holder as (
         select l.name, l.session, l.thread, l.note, s.host, s.program, s.pid
           from reach r straight_join rowlock_lease l straight_join rowlock_session s
          where l.name = r.name and s.id = l.session and l.thread is not null and not {free})
select h.name, null, null, h.session, h.thread, h.note, h.host, h.program, h.pid
  from holder h
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, m.host, m.program, m.pid
  from reach r straight_join rowlock_waiter w straight_join rowlock_session m
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
  from rowlock_waiter w straight_join rowlock_session m
 where w.name = $1 and m.id = w.session and {live}
 order by w.ticket

-- statement next_waiter
-- Reads a lease and the first live ticket of its queue, in one snapshot; locks nothing. The lease is granted
-- to that ticket by compare-and-set on the token read here.
-- $1 name
-- → the token a grant would carry; whether the lease has a row, its token, whether it is free, its
--   session, its grant id; the ticket, its session, grant id, thread, note, deadline in µs, and its
--   session's wake-up address, secret and mailbox, or NULLs
select greatest(coalesce(l.token, 0), f.floor) + 1,
       l.name is not null, l.token, {free}, l.session, l.grant_id,
       w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
       w.wake_address, w.wake_secret, w.mailbox
  from rowlock_token_floor f
       left join rowlock_lease l on l.name = $1
       left join rowlock_session s on s.id = l.session
       left join (select w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
                         m.wake_address, m.wake_secret, m.mailbox
                    {first_waiter}) w on 1 = 1
 where f.id = 1

-- statement dead_places
-- How many entries there are in all queues, and how many of them belong to dead sessions: those block no
-- waiter, and the reaper removes them. For people; reads only. No count of this query itself: over an empty
-- table MariaDB 10.11 answers NULL for a subquery beside it that reads a variable.
select (select count(*) from rowlock_waiter),
       (select count(*) from rowlock_waiter)
       - (select count(*) from rowlock_waiter w join rowlock_session m on m.id = w.session
           where {live})
