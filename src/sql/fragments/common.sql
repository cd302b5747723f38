-- Pieces that several statements share, written {name} there, or {name(argument)} for one with an {x}: those that agree in
-- MySQL and SQLite, but for {join}, {least}, {greatest} and {integer(x)}.

-- fragment micros(x)
-- A time in µs since the epoch that can be counted and written, whatever a damaged row contains: one outside the years
-- 1900 to 2200 becomes the nearest in them, whose distance from now fits into 64 bits of nanoseconds; NULL stays. So
-- one such row spoils its own line and no other. For what is reported alone: what decides compares the column itself.
{least}({greatest}({integer({x})}, -2208988800000000), 7258118400000000)

-- fragment span(x)
-- So many µs.
{x}

-- fragment since(x)
-- How long ago a time was, in µs.
({now} - {micros({x})})

-- fragment until(x)
-- In how long a time comes, in µs.
({micros({x})} - {now})

-- fragment holder_gone
-- Whether lock l has no sole holder, or one that has ended: l is left-joined to the session s of that holder. A session
-- that has expired but is not ended still blocks the lock: a taker ends that session first, by a conditional write that
-- serialises with its heartbeat (invariant I3).
(l.session is null or s.id is null or s.ended or coalesce(l.deadline <= {now}, false))

-- fragment free
-- Whether lock l, with the session s of its sole holder, may be granted to a sole holder: it has none that lives, no
-- counted holds, and is no semaphore. What is judged of the holder counts together with the row's token alone: every
-- grant of either kind raises it, so who writes compares it, and the other two need no second look.
({holder_gone} and coalesce(l.used = 0 and l.capacity is null, true))

-- fragment room(x)
-- How much weight of counted holds lock x has room for. Modes: 2·10^9 - 1, the weight of an exclusive hold. None beside a
-- hold that is upgraded.
(case when {upgraded({x})} then 0 else coalesce({x}.capacity, 1999999999) - {x}.used end)

-- fragment upgraded(x)
-- Whether the hold of lock x is upgraded: its row has no sole holder, and names a grant. Then x has that hold alone, and
-- nobody is granted anything besides; the end of the hold ends the upgrade.
({x}.session is null and {x}.grant_id is not null)

-- fragment weight_of(x)
-- How much of its lock hold x keeps from others: all, if it is upgraded.
(case when exists (select 1 from rowlock_lock k where k.name = {x}.name and {upgraded(k)}) then 1999999999 else {x}.weight end)

-- fragment token_of(x)
-- The token of hold x: that of its upgrade, if it is upgraded.
coalesce((select k.token from rowlock_lock k where k.name = {x}.name and {upgraded(k)}), {x}.token)

-- fragment next_token(x)
-- The token that lock x has next, above the floor; a promised one is passed over. NULL without a
-- floor: no row takes it.
(select {greatest}({x}.token, f.floor) + 1 from rowlock_token_floor f where f.id = 1)

-- fragment token_of_move(x)
-- The token of lock x as it changes hands, or its deadline, without a grant.
{next_token({x})}

-- fragment unpromise
-- An assignment: the next token is promised to nobody.

-- fragment now_after(x)
-- Now, in a column whose time x is.
{now}

-- fragment text(x)
-- A text that compares as our columns do.
{x}

-- fragment epoch
-- A time before all others.
0

-- fragment bounded_select
-- The first word of a statement that may run on the caller's handle, which need not have a limit on a
-- statement's time. transaction/fencing puts mariadb_select or mysql_select here.
select

-- fragment for_update
-- Locks the rows that are read.
for update

-- fragment waits
-- Whether ticket w of session m can be served: its session is alive, and the time limit of its caller has not passed.
-- A later waiter is served before a ticket whose limit has passed, and a newcomer passes it: its caller has left,
-- or is about to. The promise of a token (reserved_for) outlasts the limit: until that ticket is deleted no other is
-- served. So none whose limit is near is promised one.
-- An upgrade can be served while the hold that it upgrades is alive, not released, nor ended by force.
({live} and coalesce(w.waits_until > {now}, true)
 and (w.base is null
      or exists (select 1 from rowlock_hold b
                  where b.name = w.name and b.grant_id = w.base and b.session = w.session
                    and not coalesce(b.deadline <= {now}, false))))

-- fragment first_waiter
-- The first ticket w of the queue of the name $1 that can be served.
from rowlock_ticket w {in_ticket_order} {join} rowlock_session m
where w.name = $1 and m.id = w.session and {waits}
order by w.ticket limit 1

-- fragment waited
-- Whether a waiter waits for the name $1 that can be served. A ticket whose session has expired, or whose limit has
-- passed, blocks no client.
exists (select 1 from rowlock_ticket w {join} rowlock_session m
         where w.name = $1 and m.id = w.session and {waits})

-- fragment waited_at(x)
-- The same for lock x, whose name is $1 in each statement that asks.
{waited}

-- fragment probe
-- The columns that protocol::lease_probe reads, of lease l, named $1, and its session s. The queue is read only if
-- the lease is free. An expired holder blocks the lease until it is ended, and no longer: from then on the
-- waiters for the free lease keep it from others. The last column: 1 = counted holds are in the way, 2 = this is a
-- semaphore.
l.name is not null,
l.token,
{free},
l.grant_id,
l.session,
coalesce(s.expires_at <= {now}, 0) and not {holder_gone},
{until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))},
case when {free} then {waited} else 0 end,
case when l.capacity is not null then 2 else coalesce(l.used, 0) <> 0 end

-- fragment glance
-- The columns of protocol::lease_glance: whether lease l, with its session s, may be granted, and its remaining time in
-- µs.
{free},
{until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))}

-- fragment info
-- The columns that read_info reads, for people: the name n.name, its lease l, the holder s and the
-- queue.
n.name,
coalesce(l.token, 0),
{since(l.changed_at)},
{holder_gone},
l.session,
l.grant_id,
s.owner,
s.host,
s.program,
l.thread,
l.note,
s.pid,
{since(l.acquired_at)},
{until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))},
(select count(*) {queue}),
{since((select min(w.enqueued_at) {queue}))},
case when l.asked_for = l.grant_id then coalesce(l.asked_by, '') end,
l.reason

-- fragment queue
-- The live waiters for all of the lock n.name. One step into the index by (name, ticket) if there are none.
from rowlock_ticket w {join} rowlock_session m
where w.name = n.name and w.weight is null and m.id = w.session and {live}

-- fragment hold_over
-- Whether hold s of permits, left-joined to its session m, has ended: its session has, or its own deadline has
-- passed. An expired session is ended first, by a conditional write that serialises with its heartbeat (I3).
(m.id is null or m.ended or coalesce(s.deadline <= {now}, false))

-- fragment held_now
-- Whether the tables name the hold that record h is about. NULL: no more; 0: yes, and its session has ended; 1: it is
-- held; else the time since when its session or its own deadline has been over, in µs.
(case when h.permits is null then
     (select case when m.id is null or m.ended = 1 then 0
                  when {least}(m.expires_at, coalesce(l.deadline, m.expires_at)) > {now_in_any_zone} then 1
                  else {least}(m.expires_at, coalesce(l.deadline, m.expires_at)) end
        from rowlock_lock l left join rowlock_session m on m.id = l.session
       where l.name = h.name and l.session = h.session and l.grant_id = h.grant_id)
 else
     (select case when m.id is null or m.ended = 1 then 0
                  when {least}(m.expires_at, coalesce(p.deadline, m.expires_at)) > {now_in_any_zone} then 1
                  else {least}(m.expires_at, coalesce(p.deadline, m.expires_at)) end
        from rowlock_hold p left join rowlock_session m on m.id = p.session
       where p.name = h.name and p.session = h.session and p.grant_id = h.grant_id) end)

-- fragment live_permits
-- How many permits of semaphore p are held by live holders. The counter has those of dead ones as well, until the next
-- taker or a reaper returns them.
(select coalesce(sum(s.weight), 0)::bigint from rowlock_hold s {join} rowlock_session m
  where s.name = p.name and m.id = s.session and not {hold_over} and m.expires_at > {now})

-- fragment is_mode(x)
-- Whether counted holds and waiters of the name x.name are modes, and no permits: 1 or 0. A semaphore's row is never deleted.
-- Also for connections of the caller: see fence.
coalesce((select (k.capacity is null)::int from rowlock_lock k where k.name operator(pg_catalog.=) {x}.name), 1)

-- fragment kind_of(x)
-- What ticket or hold x waits for, or has, for people: NULL all of a lock, 0 permits, 1 a mode.
case when {x}.weight is not null then {is_mode({x})} end

-- fragment counts(x)
-- Whether lock x is a semaphore, or has counted holds or counted waiters.
({x}.capacity is not null or {x}.used <> 0
 or exists (select 1 from rowlock_ticket c where c.name = {x}.name and c.weight is not null))

-- fragment semaphore_info
-- The columns that read_semaphore reads, of lock p: name, capacity, used (all, if one holder has that), its live waiters,
-- and how much those wait for; while somebody has all of it, or nobody any of it, the counted ones alone.
p.name, coalesce(p.capacity, 1999999999),
case when exists (select 1 from rowlock_lock l join rowlock_session s on s.id = l.session
                   where l.name = p.name and not {holder_gone}) or {upgraded(p)} then 1999999999 else p.used end,
(select count(*) from rowlock_ticket w {join} rowlock_session m
  where w.name = p.name and (w.weight is not null or p.used <> 0) and m.id = w.session and {live}),
(select coalesce(sum(w.weight), 0)::bigint from rowlock_ticket w {join} rowlock_session m
  where w.name = p.name and m.id = w.session and {live})

-- fragment entries
-- The caller of multi_enqueue writes it: one of these for each name.
($8, $1, $9, $2, $3, $4, {one_now}, $5, $6, {one_now} + $7, $10)
