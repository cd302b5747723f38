-- statement served
-- Whether a queue entry was served: the lease is this grant. Reads only.
-- $1 name  $2 my session  $3 grant id
-- → token, what is left of its own deadline in µs, or NULL
select l.token, {until(l.deadline)}
  from rowlock_lease l
 where l.name = $1 and l.session = $2 and l.grant_id = $3

-- statement names_with_waiters
-- Which of these names have a waiter that can be served. Reads only.
-- $1 … $16 names; may repeat
select distinct w.name
  from rowlock_ticket w join rowlock_session m on m.id = w.session
 where w.name in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
   and {waits_for_lease}

-- statement queues_of_session
-- The names with live waiters that the end of a session concerns: it has the lease, or an entry in their
-- queue. Leases and tickets in one snapshot: a grant that moved the session from the one to the other is seen
-- as either. Driven by the waiters, which are few: leases have no index by session.
-- $1 session
select distinct w.name
  from rowlock_ticket w join rowlock_session m on m.id = w.session
 where {live} and w.weight is null
   and (exists (select 1 from rowlock_lease l where l.name = w.name and l.session = $1)
        or exists (select 1 from rowlock_ticket d where d.name = w.name and d.session = $1 and d.weight is null))

-- statement free_with_waiters
-- A batch of names that are free and have a live waiter: for the reaper, which keeps a queue moving if every
-- client that should have checked is gone. Reads only.
-- $1 after which name  $2 batch
select distinct w.name
  from rowlock_ticket w
       join rowlock_session m on m.id = w.session
       left join rowlock_lease l on l.name = w.name
       left join rowlock_session s on s.id = l.session
 where w.name > $1 and {waits_for_lease} and {free}
 order by w.name limit $2

-- statement entries
-- All queue entries of a session for leases, in one snapshot; reads only. Positions are counted once for each queue, not
-- once for each entry: a thousand entries in one queue are one pass over it.
-- $1 my session
-- → whether my session lives; name, grant id, ticket, position (0: it cannot be served), whether the
--   lease may be granted, its session, whether that has expired, what is left of it in µs; 0; in how many
--   queues the request of the first entry of this queue stands. One row with NULLs if there is no entry.
select (select count(*) from rowlock_session m where m.id = $1 and {live}),
       mine.name, mine.grant_id, mine.ticket, coalesce(q.place, 0),
       {free}, l.session, coalesce(s.expires_at <= {now}, 0) and not {free},
       case when {free} then 0
            else {until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))} end,
       0, coalesce(q.members, 1)
  from (select 1 as one) as one
       left join rowlock_ticket mine on mine.session = $1 and mine.weight is null
       left join rowlock_lease l on l.name = mine.name
       left join rowlock_session s on s.id = l.session
       left join (select w.ticket,
                         row_number() over (partition by w.name order by w.ticket) as place,
                         first_value(w.members) over (partition by w.name order by w.ticket) as members
                    from (select distinct o.name from rowlock_ticket o
                           where o.session = $1 and o.weight is null) n
                         {join} rowlock_ticket w {join} rowlock_session m
                   where w.name = n.name and m.id = w.session and {waits_for_lease}) q
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
         select w.name from rowlock_ticket w where w.session = $1 and w.thread is not null and w.weight is null
         union
         select o.name
           from reach r {join} rowlock_lease l {join} rowlock_ticket o
          where l.name = r.name and o.session = l.session and o.thread = l.thread and o.weight is null
         union
         select o.name
           from reach r {join} rowlock_ticket w {join} rowlock_ticket o
          where w.name = r.name and w.weight is null and o.session = w.session and o.thread = w.thread
            and o.weight is null),
     holder as (
         select l.name, l.session, l.thread, l.note, s.host, s.program, s.pid
           from reach r {join} rowlock_lease l {join} rowlock_session s
          where l.name = r.name and s.id = l.session and l.thread is not null and not {free})
select h.name, null, null, h.session, h.thread, h.note, h.host, h.program, h.pid
  from holder h
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, m.host, m.program, m.pid
  from reach r {join} rowlock_ticket w {join} rowlock_session m
 where w.name = r.name and m.id = w.session and {waits_for_lease}
   and (exists (select 1 from holder h where h.session = w.session and h.thread = w.thread)
        or exists (select 1 from rowlock_ticket o
                    where o.session = w.session and o.thread = w.thread and o.ticket <> w.ticket
                      and o.weight is null))

-- statement queue
-- The live waiters of one name, for people, in the order in which they will be served. Reads only.
-- $1 name  $2 1 = those for permits, 0 = for the lease
-- → ticket, session, owner, host, program, thread, note, pid, µs waited, in how many queues its request stands,
--   priority, weight
select w.ticket, w.session, m.owner, m.host, m.program, w.thread, w.note, m.pid,
       {since(w.enqueued_at)}, w.members, w.priority, w.weight
  from rowlock_ticket w {join} rowlock_session m
 where w.name = $1 and (w.weight is not null) = $2 and m.id = w.session and {live}
 order by w.ticket
