-- The names with live waiters that the end of a session concerns: it has the lease, or a place before
-- them. Leases and tickets in one snapshot: a grant that moved the session from the one to the other is
-- seen as either. Driven by the waiters, of whom there are few: leases have no index by session. OFFSET 0
-- has them looked up by key: where statistics are old, the planner would read all of them.
-- $1 session
select distinct w.name
  from rowlock_waiter w join rowlock_session m on m.id = w.session
 where {live}
   and (exists (select from rowlock_lease l where l.name = w.name and l.session = $1::bigint
                offset 0)
        or exists (select from rowlock_waiter d where d.name = w.name and d.session = $1::bigint))
