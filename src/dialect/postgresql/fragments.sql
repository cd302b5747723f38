-- Pieces that several statements share, written {name} there.

-- fragment now
clock_timestamp()

-- fragment free
-- Whether lease l, left-joined to its session s, may be granted. A session that has expired but was
-- not ended is still in the way: whoever wants the lease ends that session first, by a conditional
-- write that its heartbeat serialises with (invariant I3).
(l.session is null or s.id is null or s.ended or coalesce(l.deadline <= clock_timestamp(), false))

-- fragment live
-- Whether session m can be granted anything.
(not m.ended and m.expires_at > clock_timestamp())

-- fragment waited
-- Whether somebody live waits for the name $1. A ticket whose session has expired is in nobody's way:
-- it can never be served.
exists (select from rowlock_waiter w join rowlock_session m on m.id = w.session
         where w.name = $1::text and {live})

-- fragment look
-- What a look at lease l, named $1, and its session s tells; the columns strategy::look reads. The
-- queue is looked at only if the lease is free.
(l.name is not null)::int as present,
l.token as token,
{free}::int as free,
l.grant_id as grant_id,
l.session as session,
coalesce(s.expires_at <= clock_timestamp(), false)::int as expired,
(extract(epoch from least(s.expires_at, l.deadline) - clock_timestamp()) * 1000000)::bigint as remaining,
case when {free} then {waited}::int else 0 end as waited

-- fragment info
-- What people want to know of the name n.name, its lease l, the holder s and the queue q; the columns
-- strategy::info reads.
n.name,
coalesce(l.token, 0),
(extract(epoch from clock_timestamp() - l.changed_at) * 1000000)::bigint,
{free}::int,
l.session,
l.grant_id,
s.owner,
s.host,
s.program,
l.thread,
l.note,
s.pid,
(extract(epoch from clock_timestamp() - l.acquired_at) * 1000000)::bigint,
(extract(epoch from least(s.expires_at, l.deadline) - clock_timestamp()) * 1000000)::bigint,
q.waiting,
(extract(epoch from clock_timestamp() - q.since) * 1000000)::bigint

-- fragment queue
-- To be joined to n: how many live waiters n.name has, and since when the first of them waits. One step
-- into the index by (name, ticket) if there are none.
lateral (select count(*) as waiting, min(w.enqueued_at) as since
           from rowlock_waiter w join rowlock_session m on m.id = w.session
          where w.name = n.name and {live}) q

-- fragment bounded
-- The head of a WITH: whoever reads `bounded` has bounded its wait for rows by $5 ms, in the same
-- statement and before it locks any, and finds there what to put back. A shorter lock_timeout of
-- the caller's stays.
was as materialized (
         select current_setting('lock_timeout') as lock_timeout,
                current_setting('idle_in_transaction_session_timeout') as idle),
     bounded as materialized (
         select was.*,
                set_config('lock_timeout', case
                    when was.lock_timeout::interval between interval '1 us'
                                                        and $5::bigint * interval '1 ms'
                    then was.lock_timeout else $5::bigint::text end, true)
           from was)
