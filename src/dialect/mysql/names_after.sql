-- The names with live waiters that the end of a session concerns: it has the lease, or a place before
-- them. Leases and tickets in one snapshot: a grant that moved the session from the one to the other is
-- seen as either. Driven by the waiters, of whom there are few: leases have no index by session.
-- $1 session
select distinct w.name
  from rowlock_waiter w join rowlock_session m on m.id = w.session
 where {live}
   and (exists (select 1 from rowlock_lease l where l.name = w.name and l.session = $1)
        or exists (select 1 from rowlock_waiter d where d.name = w.name and d.session = $1))
