-- statement served
-- Whether a queue entry was served: the lease is this grant. Reads only.
-- $1 name  $2 my session  $3 grant id
-- → token, what is left of its own deadline in µs, or NULL
select l.token, {until(l.deadline)}
  from rowlock_lock l
 where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint

-- statement names_with_waiters
-- Which of these names have a waiter that can be served. Reads only.
-- $1 … $16 names; may repeat
select distinct w.name
  from rowlock_ticket w join rowlock_session m on m.id = w.session
 where w.name in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
   and {waits}

-- statement queues_of_session
-- The names that the end of a session concerns: those with live waiters that it held, or in whose queue it has an entry,
-- are to be served; those that it has counted holds of are to be swept first. Locks and tickets in one snapshot: a grant
-- that moved the session from the one to the other is seen as either. Sole holders are found from the waiters, which are
-- few: locks have no index by session.
-- $1 session
-- → name, whether it has counted holds of it
select n.name, max(n.counted)
  from (select w.name, 0 as counted
          from rowlock_ticket w join rowlock_session m on m.id = w.session
         where {live}
           and (exists (select 1 from rowlock_lock l where l.name = w.name and l.session = $1)
                or exists (select 1 from rowlock_ticket d where d.name = w.name and d.session = $1))
        union all
        select s.name, 1 from rowlock_hold s where s.session = $1) n
 group by n.name

-- statement names_to_serve
-- A batch of names with a live waiter that no live sole holder keeps out: for the reaper, which keeps a queue moving if
-- every client that should have checked is gone. Reads only.
-- $1 after which name  $2 batch
select distinct w.name
  from rowlock_ticket w
       join rowlock_session m on m.id = w.session
       left join rowlock_lock l on l.name = w.name
       left join rowlock_session s on s.id = l.session
 where w.name > $1::text and {waits} and {holder_gone} and ({free} or {room(l)} > 0)
 order by w.name limit $2::bigint

-- statement clear_sole
-- Takes a sole holder that has ended out of its row, by compare-and-set: a judgement of a session counts only together
-- with the token that it was made at, so no counted take or grant makes one, and this comes before. Waits for a
-- transaction that has fenced the grant, as every take-over does.
-- acquired_at stays: by it the history distinguishes this from a release (migrations/*/history/on.sql).
-- $1 name  $2 token  $3 session
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, deadline = null, changed_at = {now}
 where name = $1::text and token = $2::bigint and session = $3::bigint

-- statement entries
-- All queue entries of a session, in one snapshot; reads only. Positions are counted once for each queue, not
-- once for each entry: a thousand entries in one queue are one pass over it.
-- $1 my session
-- → whether my session lives; name, grant id, ticket, position (0: it cannot be served), whether the first entry of the
--   queue can be served, the sole holder's session, whether that has expired, its remaining time in µs; 0; in how many
--   queues the request of the first entry of this queue stands; whether counted holds are in the way, whether the entry
--   wants a part of the lock, whether that is a semaphore. One row with NULLs if there is no entry.
select (select count(*) from rowlock_session m where m.id = $1 and {live}),
       mine.name, mine.grant_id, mine.ticket, coalesce(q.place, 0),
       case when q.weight is null then {free} else {holder_gone} and coalesce(q.weight <= {room(l)}, 1) end,
       l.session, coalesce(s.expires_at <= {now}, 0) and not {holder_gone},
       case when {holder_gone} then 0
            else {until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))} end,
       0, coalesce(q.members, 1), coalesce(l.used, 0) > 0, mine.weight is not null, l.capacity is not null
  from (select 1 as one) as one
       left join rowlock_ticket mine on mine.session = $1
       left join rowlock_lock l on l.name = mine.name
       left join rowlock_session s on s.id = l.session
       left join (select w.ticket,
                         row_number() over (partition by w.name order by w.ticket) as place,
                         first_value(w.members) over (partition by w.name order by w.ticket) as members,
                         first_value(w.weight) over (partition by w.name order by w.ticket) as weight
                    from (select distinct o.name from rowlock_ticket o where o.session = $1) n
                         {join} rowlock_ticket w {join} rowlock_session m
                   where w.name = n.name and m.id = w.session and {waits}) q
              on q.ticket = mine.ticket
 order by mine.ticket

-- statement deadlocks
-- The data for a search for deadlock cycles, in one snapshot; reads only. The parties are pairs of session
-- and thread label; a holder or waiter without a label takes no part.
--
-- `reach` is the set of names that our entries lead to: from a name to what its holders wait for, and to what
-- the waiters in its queue wait for besides. It stops growing where no new name is found, also among cycles
-- without us. A semaphore has no part in it: any of its holders may return what is waited for. An entry with `blocks` is followed from every hold of its session: whose label is which party the caller
-- decides (party_labels.hpp), as it decides what is a cycle, and which entry gives way.
-- $1 my session
-- → name; its holder's or waiter's: ticket (NULL: a holder), grant id, session, thread, note, host, program, process id;
--   weight (NULL: all of the lock), when the entry was made, of an upgrade the grant id of its hold, labels of what
--   else it blocks
with recursive reach (name) as (
         select w.name from rowlock_ticket w where w.session = $1 and w.thread is not null and {is_mode(w)} = 1
         union
         select o.name
           from reach r {join} rowlock_lock p {join} rowlock_ticket o
          where p.name = r.name and o.session = p.session
            and (o.thread = p.thread or o.blocks is not null or o.base is not null) and {is_mode(o)} = 1
         union
         select o.name
           from reach r {join} rowlock_hold p {join} rowlock_ticket o
          where p.name = r.name and o.session = p.session
            and (o.thread = p.thread or o.blocks is not null or o.base is not null) and {is_mode(o)} = 1
         union
         select o.name
           from reach r {join} rowlock_ticket p {join} rowlock_ticket o
          where p.name = r.name and o.session = p.session
            and (o.thread = p.thread or o.blocks is not null or o.base is not null) and {is_mode(o)} = 1)
select l.name, null, l.grant_id, l.session, l.thread, l.note, s.host, s.program, s.pid, null, 0, null, null
  from reach r {join} rowlock_lock l {join} rowlock_session s
 where l.name = r.name and s.id = l.session and l.thread is not null and not {holder_gone}
union all
select s.name, null, s.grant_id, s.session, s.thread, s.note, m.host, m.program, m.pid, {weight_of(s)}, 0, null, null
  from reach r {join} rowlock_hold s {join} rowlock_session m
 where s.name = r.name and s.thread is not null and m.id = s.session and not {hold_over}
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, m.host, m.program, m.pid, w.weight,
       {micros(w.enqueued_at)}, w.base, w.blocks
  from reach r {join} rowlock_ticket w {join} rowlock_session m
 where w.name = r.name and w.thread is not null and m.id = w.session and {waits}

-- statement queue
-- The live waiters of one name, for people, in the order in which they will be served. Reads only.
-- $1 name
-- → ticket, session, owner, host, program, thread, note, pid, µs waited, in how many queues its request stands,
--   priority, weight
select w.ticket, w.session, m.owner, m.host, m.program, w.thread, w.note, m.pid,
       {since(w.enqueued_at)}, w.members, w.priority, w.weight
  from rowlock_ticket w {join} rowlock_session m
 where w.name = $1::text and m.id = w.session and {live}
 order by w.ticket
