-- statement served
-- Whether a queue entry was served: the lease is this grant. Reads only.
-- $1 name  $2 my session  $3 grant id
-- → token, what is left of its own deadline in µs, or NULL
select l.token, l.deadline - {now}
  from rowlock_lease l
 where l.name = $1 and l.session = $2 and l.grant_id = $3

-- statement names_with_waiters
-- Which of these names have a live waiter. Reads only.
-- $1 … $16 names; may repeat
select distinct w.name
  from rowlock_waiter w join rowlock_session m on m.id = w.session
 where w.name in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
   and {live}

-- statement queues_of_session
-- The names with live waiters that the end of a session concerns: it has the lease, or an entry in their
-- queue. Leases and tickets in one snapshot: a grant that moved the session from the one to the other is seen
-- as either. Driven by the waiters, which are few: leases have no index by session.
-- $1 session
select distinct w.name
  from rowlock_waiter w join rowlock_session m on m.id = w.session
 where {live}
   and (exists (select 1 from rowlock_lease l where l.name = w.name and l.session = $1)
        or exists (select 1 from rowlock_waiter d where d.name = w.name and d.session = $1))

-- statement free_with_waiters
-- A batch of names that are free and have a live waiter: for the reaper, which keeps a queue moving if every
-- client that should have checked is gone. Reads only.
-- $1 after which name  $2 batch
select distinct w.name
  from rowlock_waiter w
       join rowlock_session m on m.id = w.session
       left join rowlock_lease l on l.name = w.name
       left join rowlock_session s on s.id = l.session
 where w.name > $1 and {live} and {free}
 order by w.name limit $2
