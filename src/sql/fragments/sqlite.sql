-- Pieces that several statements share, written {name} there.
--
-- SQLite has one writer, and a statement that writes has the file to itself from its first read to its
-- commit. A step that needs compare-and-set elsewhere is one statement here.

-- fragment now
-- Microseconds since the epoch, in steps of a millisecond; read after the wait for the file.
cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000

-- fragment free
-- Whether lease l, left-joined to its session s, may be granted. A session that has expired but is not ended
-- still blocks the lease: a taker ends that session first, by a conditional write that serialises with its
-- heartbeat (invariant I3).
(l.session is null or s.id is null or s.ended = 1 or coalesce(l.deadline <= {now}, 0))

-- fragment live
-- Whether session m can be granted anything.
(m.ended = 0 and m.expires_at > {now})

-- fragment waited
-- Whether a live waiter waits for the name $1. A ticket whose session has expired blocks no client: it can
-- never be served.
exists (select 1 from rowlock_waiter w cross join rowlock_session m
         where w.name = $1 and m.id = w.session and {live})

-- fragment look
-- The columns that strategy::look reads, of lease l, named $1, and its session s. The queue is read only if
-- the lease is free. An expired holder blocks the lease until it is ended, and no longer: from then on the
-- waiters for the free lease keep it from others.
l.name is not null,
l.token,
{free},
l.grant_id,
l.session,
coalesce(s.expires_at <= {now}, 0) and not {free},
coalesce(min(s.expires_at, l.deadline), s.expires_at) - {now},
case when {free} then {waited} else 0 end

-- fragment info
-- The columns that strategy::info reads, for people: the name n.name, its lease l, the holder s and the
-- queue.
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
-- The columns that read_history reads: times in µs since 1970, and the age of each record.
id, at, {now} - at, kind, name, token, session, grant_id, ticket, previous_session,
ends_at, owner, host, pid, program, note, ''
