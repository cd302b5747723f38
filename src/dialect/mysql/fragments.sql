-- Pieces that several statements share, written {name} there.

-- fragment now
-- Microseconds since the epoch. UTC_TIMESTAMP is read when the statement starts, before it waits for
-- a row's lock; SYSDATE when it is evaluated. Our connections set their time zone to UTC.
timestampdiff(microsecond, '1970-01-01', sysdate(6))

-- fragment free
-- Whether lease l, left-joined to its session s, may be granted. A session that has expired but was
-- not ended is still in the way: whoever wants the lease ends that session first, by a conditional
-- write that its heartbeat serialises with (invariant I3).
(l.session is null or s.id is null or s.ended = 1 or coalesce(l.deadline <= {now}, 0))

-- fragment live
-- Whether session m can be granted anything.
(m.ended = 0 and m.expires_at > {now})

-- fragment waited
-- Whether somebody live waits for the name $1. A ticket whose session has expired is in nobody's way:
-- it can never be served.
exists (select 1 from rowlock_waiter w straight_join rowlock_session m
         where w.name = $1 and m.id = w.session and {live})

-- fragment look
-- What a look at lease l, named $1, and its session s tells; the columns strategy::look reads. The
-- queue is looked at only if the lease is free.
l.name is not null,
l.token,
{free},
l.grant_id,
l.session,
coalesce(s.expires_at <= {now}, 0),
coalesce(least(s.expires_at, l.deadline), s.expires_at) - {now},
case when {free} then {waited} else 0 end

-- fragment info
-- What people want to know of the name n.name, its lease l, the holder s and the queue; the columns
-- strategy::info reads.
n.name,
coalesce(l.token, 0),
{now} - l.changed_at,
{free},
l.session,
l.grant_id,
s.owner,
s.host,
s.program,
l.thread,
l.note,
s.pid,
{now} - l.acquired_at,
coalesce(least(s.expires_at, l.deadline), s.expires_at) - {now},
(select count(*) {queue}),
{now} - (select min(w.enqueued_at) {queue})

-- fragment queue
-- The live waiters of the name n.name. One step into the index by (name, ticket) if there are none.
from rowlock_waiter w straight_join rowlock_session m
where w.name = n.name and m.id = w.session and {live}

-- fragment now_in_any_zone
-- The same on a connection that is the caller's, whose time zone may be any. It is read when the
-- statement starts, before a wait: only where a late answer does no harm. A deadline that passes
-- during the wait for a row leaves that row ours, and locked; changed_at is off by the wait.
timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))

-- fragment is_current
-- Whether lease l is the grant $1 name, $2 session, $3 token, and session s has not ended.
l.name = $1 and l.session = $2 and l.token = $3 and s.id = l.session and s.ended = 0
   and coalesce(l.deadline > {now_in_any_zone}, 1)

-- fragment first_waiter
-- The first live ticket w of the queue of the name $1.
-- FORCE INDEX: for ORDER BY … LIMIT 1 the optimizer is fond of the primary key, past every other queue.
from rowlock_waiter w force index (rowlock_waiter_name_ticket) straight_join rowlock_session m
where w.name = $1 and m.id = w.session and {live}
order by w.ticket limit 1
