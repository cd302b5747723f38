-- Pieces that several statements share, written {name} there.
--
-- SQLite has one writer, and a statement that writes has the file to itself from its first read to
-- its commit. What needs compare-and-set elsewhere is one statement here.

-- fragment now
-- Microseconds since the epoch, in steps of a millisecond; read after the wait for the file.
cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000

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
exists (select 1 from rowlock_waiter w cross join rowlock_session m
         where w.name = $1 and m.id = w.session and {live})

-- fragment look
-- What a look at lease l, named $1, and its session s tells; the columns strategy::look reads. The
-- queue is looked at only if the lease is free. A holder that has expired is in the way until it was ended,
-- and no longer: who waits for a lease that is free is what keeps it from others then.
l.name is not null,
l.token,
{free},
l.grant_id,
l.session,
coalesce(s.expires_at <= {now}, 0) and not {free},
coalesce(min(s.expires_at, l.deadline), s.expires_at) - {now},
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
coalesce(min(s.expires_at, l.deadline), s.expires_at) - {now},
(select count(*) {queue}),
{now} - (select min(w.enqueued_at) {queue})

-- fragment queue
-- The live waiters of the name n.name. One step into the index by (name, ticket) if there are none.
from rowlock_waiter w cross join rowlock_session m
where w.name = n.name and m.id = w.session and {live}

-- fragment history
-- What read_history reads: times in µs since 1970, and how old each record is.
id, at, {now} - at, kind, name, token, session, grant_id, ticket, previous_session,
ends_at, owner, host, pid, program, note, ''
