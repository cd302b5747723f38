-- Pieces that several statements share, written {name} there.

-- fragment now
pg_catalog.clock_timestamp()

-- fragment finite(x)
-- A time that can be counted and written, whatever a damaged row contains: infinity, or a time outside the years 1900
-- to 2200, becomes the nearest in them, whose distance from now fits into 64 bits of nanoseconds; NULL stays. So one
-- such row spoils its own line and no other. For what is reported alone: what decides compares the column itself. Also
-- for connections of the caller: see fence.
case when {x} operator(pg_catalog.>) '2200-01-01 00:00:00+00'::pg_catalog.timestamptz
     then '2200-01-01 00:00:00+00'::pg_catalog.timestamptz
     when {x} operator(pg_catalog.<) '1900-01-01 00:00:00+00'::pg_catalog.timestamptz
     then '1900-01-01 00:00:00+00'::pg_catalog.timestamptz else {x} end

-- fragment micros(x)
-- A time in µs since the epoch.
(extract(epoch from {finite({x})}) operator(pg_catalog.*) 1000000)::bigint

-- fragment span(x)
-- So many µs.
{x}::bigint::float8 * interval '1 microsecond'

-- fragment since(x)
-- How long ago a time was, in µs.
(extract(epoch from pg_catalog.clock_timestamp() operator(pg_catalog.-) {finite({x})})
 operator(pg_catalog.*) 1000000)::bigint

-- fragment until(x)
-- In how long a time comes, in µs.
(extract(epoch from {finite({x})} operator(pg_catalog.-) pg_catalog.clock_timestamp())
 operator(pg_catalog.*) 1000000)::bigint

-- fragment here
-- Whether session m was opened on this server and its timeline: each promotion begins a timeline, and a
-- restart goes on with the old one. A standby's data may be older than what the primary before it has
-- granted; so a session of that primary is granted nothing here, and its heartbeat is refused. A standby
-- itself has nothing to compare with, and no client writes there. '': opened on a server that does not
-- identify itself.
(case when m.server_identity = '' or pg_catalog.pg_is_in_recovery() then true
      else right(m.server_identity, 8) = {timeline} end)

-- fragment timeline
pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)

-- fragment next_token(x)
-- The token that lock x has next, above the floor; a promised one is passed over. NULL without a
-- floor: no row takes it.
(select greatest({x}.token, f.floor) + 1 + ({x}.successor is not null)::int from rowlock_token_floor f where f.id = 1)

-- fragment unpromise
-- An assignment: the next token is promised to nobody.
successor = null,

-- fragment epoch
-- A time before all others.
'epoch'

-- fragment greatest
-- The function that returns the greatest of its arguments.
greatest

-- fragment least
-- The function that returns the least of its arguments.
least

-- fragment join
-- A join whose condition is in the WHERE.
cross join

-- fragment proved_words
-- The words of t with the proof that the sender can read the session's row, as wakeup::encode_wakeup makes
-- it: half of SHA-256 over the secret and the words.
t.words || ' '
|| pg_catalog.left(
       pg_catalog.encode(
           pg_catalog.sha256(pg_catalog.convert_to(t.wake_secret || t.words, 'UTF8'::pg_catalog.name)),
           'hex'::text),
       32)

-- fragment unexpired
-- Whether session m is alive, here or on a server before this one: its client may still trust it.
(not m.ended and m.expires_at > clock_timestamp())

-- fragment live
-- Whether session m can be granted anything.
({unexpired} and {here})

-- fragment candidate
-- What a sole grant reads of ticket w and its session m.
w.name, w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us, w.members, w.weight, m.wake_address, m.wake_secret

-- fragment in_queue
-- Whether w is a ticket in the queue of the name $1, for reads that begin where the queue does. Older tickets
-- were served, except one whose enqueue drew it 256 tickets ago and committed only now. Its owner finds that
-- its ticket was overtaken, and has the watermark set back (reset_watermark).
w.name = $1::text
  and w.ticket > (select coalesce(max(b.served), 0) - 256 from rowlock_lock b where b.name = $1::text)

-- fragment stands_at(x)
-- Whether w is a ticket in the queue of lock x, for counted takes and grants: those in_queue finds, and an upgrade's,
-- which is negative. in_queue leaves an upgrade out: while it can be served its hold is counted, and no sole holder can
-- be granted anything. A look and the statement that it chooses have to find the same first ticket, or a client
-- circles.
(w.name = {x}.name and (w.ticket > coalesce({x}.served, 0) - 256 or w.ticket < 0))

-- fragment reserved_for
-- The grant id of the waiter to which lease l promises the next token, if that waiter can be served: it goes
-- before all others (docs/adr/0023). NULL if there is none. Includes a waiter whose session was opened on a
-- server before this one: it may have been notified of a grant that never reached this server.
(select h.grant_id from rowlock_ticket h join rowlock_session m on m.id = h.session
  where h.grant_id = l.successor and {unexpired})

-- fragment waited
-- Whether a waiter waits for the name $1 that can be served. A ticket whose session has expired, or whose limit has
-- passed, blocks no client.
exists (select from rowlock_ticket w join rowlock_session m on m.id = w.session
         where {in_queue} and {waits})

-- fragment waited_n
-- The same for the name n.name, and for upgrades (stands_at): their tickets are negative.
(exists (select from rowlock_ticket w join rowlock_session m on m.id = w.session
          where w.name = n.name and {waits}
            and w.ticket > (select coalesce(max(b.served), 0) - 256
                              from rowlock_lock b where b.name = n.name))
 or exists (select from rowlock_ticket w join rowlock_session m on m.id = w.session
             where w.name = n.name and w.ticket < 0 and {waits}))

-- fragment probe
-- The columns that protocol::lease_probe reads, of lease l, named $1, and its session s. The queue is read only if
-- the lease is free. An expired holder blocks the lease until it is ended, and no longer: from then on the
-- waiters for the free lease keep it from others. Its last columns: 1 = the queue has a waiter, 2 = and
-- that waiter is promised the next token, so that no other may pass it; 1 = counted holds are in the way, 2 = this is a
-- semaphore.
(l.name is not null)::int as present,
l.token as token,
{free}::int as free,
l.grant_id as grant_id,
l.session as session,
(coalesce(s.expires_at <= clock_timestamp(), false) and not {holder_gone})::int as expired,
{until(least(s.expires_at, l.deadline))} as remaining,
case when not {free} then 0 when {reserved_for} is not null then 2 else {waited}::int end as waited,
case when l.capacity is not null then 2 else (coalesce(l.used, 0) <> 0)::int end as counted

-- fragment glance
-- The columns of protocol::lease_glance: whether lease l, with its session s, may be granted, and its remaining time in
-- µs.
{free}::int,
{until(least(s.expires_at, l.deadline))}

-- fragment entry_states
-- The state of the queue entries `mine`, from a WITH on; the columns read_entries reads: whether my
-- session $1 lives; name, grant id, ticket, position (0: it cannot be served), whether the first entry of the queue, or
-- the one that is promised the lock, can be served, the sole holder's session, whether that has expired, its remaining time in µs, whether reads of this queue
-- would miss the entry (fragment in_queue), in how many queues the request of the entry stands that is to be served next:
-- of the first, or 1 if the lock is promised to another; whether counted holds are in the way, whether the entry wants a
-- part of the lock, whether that is a semaphore. One row with NULLs if there is no entry.
-- Positions are counted once for each queue, not once for each entry: a thousand entries in one queue are one
-- pass over it. OFFSET 0 makes the planner look sessions up by key: it has no statistics for a short queue,
-- and would read all sessions.
queue as materialized (
         select n.name, l.served, {free} as free, {holder_gone} as gone, l.session,
                {reserved_for} as reserved_for, {room(l)} as room, l.used, l.capacity,
                coalesce(s.expires_at <= clock_timestamp(), false) as expired,
                least(s.expires_at, l.deadline) as ends
           from (select distinct mine.name from mine) n
                left join rowlock_lock l on l.name = n.name
                left join rowlock_session s on s.id = l.session),
     first as materialized (
         select queue.name, least(coalesce(queue.served, 0) - 255, min(mine.ticket)) as ticket
           from queue join mine on mine.name = queue.name
          group by queue.name, queue.served),
     place as materialized (
         select first.name, q.ticket, q.position, q.members, q.weight
           from first, lateral (
                select w.ticket, row_number() over (order by w.ticket) as position,
                       pg_catalog.first_value(w.members) over (order by w.ticket) as members,
                       pg_catalog.first_value(w.weight) over (order by w.ticket) as weight
                  from rowlock_ticket w
                       cross join lateral (select from rowlock_session m
                                            where m.id = w.session and {waits} offset 0) m
                 where w.name = first.name and (w.ticket >= first.ticket or w.ticket < 0)) q)
select (select count(*) from rowlock_session m where m.id = $1::bigint and {live}),
       mine.name, mine.grant_id, mine.ticket, coalesce(place.position, 0),
       (case when place.weight is null or queue.reserved_for is not null then queue.free
             else queue.gone and queue.reserved_for is null and coalesce(place.weight <= queue.room, true) end)::int,
       queue.session, (queue.expired and not queue.gone)::int,
       case when queue.gone then 0
            else coalesce({until(queue.ends)}, 0) end,
       (mine.ticket <= coalesce(queue.served, 0) - 256 and mine.ticket >= 0)::int,
       case when queue.reserved_for is null then coalesce(place.members, 1) else 1 end,
       (coalesce(queue.used, 0) > 0)::int, (mine.weight is not null)::int, (queue.capacity is not null)::int
  from (values (1)) as one
       left join mine on true
       left join queue on queue.name = mine.name
       left join place on place.name = mine.name and place.ticket = mine.ticket
 order by mine.ticket

-- fragment info
-- The columns that read_info reads, for people: the name n.name, its lease l, the holder s and the queue
-- q.
n.name,
coalesce(l.token, 0),
{since(l.changed_at)},
{holder_gone}::int,
l.session,
l.grant_id,
s.owner,
s.host,
s.program,
l.thread,
l.note,
s.pid,
{since(l.acquired_at)},
{until(least(s.expires_at, l.deadline))},
q.waiting,
{since(q.since)},
case when l.asked_for = l.grant_id then coalesce(l.asked_by, '') end,
l.reason

-- fragment queue
-- To be joined to n: how many live waiters for all of n.name there are, and since when the first of them waits. One step
-- into the index by (name, ticket) if there are none.
lateral (select count(*) as waiting, min(w.enqueued_at) as since
           from rowlock_ticket w join rowlock_session m on m.id = w.session
          where w.name = n.name and w.weight is null and {live}) q

-- fragment bounded
-- The head of a WITH: a reader of `bounded` limits its waits for rows to $5 ms, in the same statement and
-- before it locks any, and finds there what to put back. A shorter lock_timeout of the caller stays. For
-- connections of the caller: see fence.
was as materialized (
         select pg_catalog.current_setting('lock_timeout') as lock_timeout,
                pg_catalog.current_setting('idle_in_transaction_session_timeout') as idle),
     bounded as materialized (
         select was.*,
                pg_catalog.set_config('lock_timeout', case
                    when was.lock_timeout::interval operator(pg_catalog.>=) interval '1 us'
                     and was.lock_timeout::interval operator(pg_catalog.<=)
                         ($5::bigint operator(pg_catalog.*) interval '1 ms')
                    then was.lock_timeout else $5::bigint::pg_catalog.text end, true)
           from was)

-- fragment equality
-- The quoted schema of the operator by which values of column a are equal: that of its type's b-tree, which
-- an extension such as citext provides; pg_catalog for every type without its own. For connections of the
-- caller: see fence.
coalesce((with recursive layer (type, base) as (
                  select y.oid, y.typbasetype from pg_catalog.pg_type y
                   where y.oid operator(pg_catalog.=) a.atttypid
                  union all
                  select y.oid, y.typbasetype
                    from layer join pg_catalog.pg_type y on y.oid operator(pg_catalog.=) layer.base)
          select pg_catalog.quote_ident(n.nspname)
            from layer
            join pg_catalog.pg_opclass c on c.opcintype operator(pg_catalog.=) layer.type
             and c.opcdefault
            join pg_catalog.pg_am m on m.oid operator(pg_catalog.=) c.opcmethod
             and m.amname operator(pg_catalog.=) 'btree'
            join pg_catalog.pg_amop o on o.amopfamily operator(pg_catalog.=) c.opcfamily
             and o.amopstrategy operator(pg_catalog.=) 3
             and o.amoplefttype operator(pg_catalog.=) c.opcintype
             and o.amoprighttype operator(pg_catalog.=) c.opcintype
            join pg_catalog.pg_operator e on e.oid operator(pg_catalog.=) o.amopopr
             and e.oprname operator(pg_catalog.=) '='
            join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) e.oprnamespace
           where layer.base operator(pg_catalog.=) 0::pg_catalog.oid), 'pg_catalog')

-- fragment last_of_k
-- The page of the last row of k, and its row in that page, if k is a whole batch of $1; else NULL.
(select case when count(*) = $1::bigint
             then ((pg_catalog.array_agg(k.place order by k.place desc))[1]::text::point)[0]::bigint end from k),
(select case when count(*) = $1::bigint
             then ((pg_catalog.array_agg(k.place order by k.place desc))[1]::text::point)[1]::bigint end from k)

-- fragment settings
-- The settings of a connection that we own: session_setup has the reasons.
{stated},
pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, false),
pg_catalog.set_config('statement_timeout', $2::pg_catalog.text, false),
pg_catalog.set_config('idle_in_transaction_session_timeout', $2::pg_catalog.text, false),
pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false),
pg_catalog.set_config('jit', 'off', false),
pg_catalog.set_config('search_path', 'pg_catalog, ' operator(pg_catalog.||)
    case when home.name is null then home.configured
         else home.name operator(pg_catalog.||) ', ' end operator(pg_catalog.||) 'pg_temp', false)

-- fragment stated
-- Every setting that our statements, our drivers and the migrations rely on: each may have another default by the
-- server, the database or the role. Isolation: READ COMMITTED, at which the compare-and-set protocol is proved.
-- Durability: a grant must survive a crash, so `off` becomes `on` and anything stricter stays. Messages: the driver
-- must hear the warning that no standby confirmed a commit. How text is written and read: names, arrays, times.
-- Nothing ends an idle connection, or a transaction but the timeouts that the caller sets. A server before 14 has no
-- idle_session_timeout, one before 17 no transaction_timeout.
pg_catalog.set_config('client_encoding', 'UTF8', false),
pg_catalog.set_config('client_min_messages', 'warning', false),
pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
pg_catalog.set_config('default_transaction_read_only', 'off', false),
pg_catalog.set_config('default_transaction_deferrable', 'off', false),
pg_catalog.set_config('synchronous_commit',
    case when pg_catalog.current_setting('synchronous_commit') operator(pg_catalog.=) 'off' then 'on'
         else pg_catalog.current_setting('synchronous_commit') end, false),
pg_catalog.set_config('standard_conforming_strings', 'on', false),
pg_catalog.set_config('backslash_quote', 'safe_encoding', false),
pg_catalog.set_config('array_nulls', 'on', false),
pg_catalog.set_config('transform_null_equals', 'off', false),
pg_catalog.set_config('bytea_output', 'hex', false),
pg_catalog.set_config('extra_float_digits', '1', false),
pg_catalog.set_config('datestyle', 'ISO, MDY', false),
pg_catalog.set_config('intervalstyle', 'postgres', false),
pg_catalog.set_config('timezone', 'UTC', false),
pg_catalog.set_config('quote_all_identifiers', 'off', false),
pg_catalog.set_config('check_function_bodies', 'on', false),
pg_catalog.set_config('row_security', 'on', false),
case when pg_catalog.current_setting('idle_session_timeout', true) is not null
     then pg_catalog.set_config('idle_session_timeout', '0', false) end,
case when pg_catalog.current_setting('transaction_timeout', true) is not null
     then pg_catalog.set_config('transaction_timeout', '0', false) end

-- fragment home
-- The quoted schema of our tables, found by the name $3; and the schemas of the configured path, where tables
-- may be made later.
home as materialized (
         select (select pg_catalog.quote_ident(n.nspname)
                   from pg_catalog.pg_class c
                        join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
                  where c.oid operator(pg_catalog.=) pg_catalog.to_regclass($3::pg_catalog.text))
                as name,
                coalesce((select pg_catalog.string_agg(pg_catalog.quote_ident(p.name)
                                                       operator(pg_catalog.||) ', ', '')
                            from pg_catalog.unnest(pg_catalog.current_schemas(false)) p (name)), '')
                as configured)

-- fragment history
-- The columns that read_history reads of record h: times in µs since 1970, and the age of each record. Also for
-- connections of the caller: see fence.
h.id, {micros(h.at)}, {since(h.at)},
h.kind, h.name, h.token, h.session, h.grant_id, h.ticket, h.previous_session,
{micros(h.ends_at)},
h.owner, h.host, h.pid, h.program, h.note, h.db_user, case when h.permits is not null then {is_mode(h)} end,
h.permits, h.reason,
{held_now}

-- fragment held_now
-- Whether the tables name the hold that record h is about. NULL: no more; 0: yes, and its session has ended; 1: it is
-- held; else the time since when its session or its own deadline has been over, in µs.
(select case when m.id is null or m.ended then 0
             when until.at operator(pg_catalog.>) pg_catalog.clock_timestamp() then 1
             when until.at operator(pg_catalog.>) timestamp with time zone '1970-01-02 00:00Z'
             then {micros(until.at)} else 0 end
   from (select l.session, l.deadline from rowlock_lock l
          where h.permits is null and l.name operator(pg_catalog.=) h.name
            and l.session operator(pg_catalog.=) h.session and l.grant_id operator(pg_catalog.=) h.grant_id
         union all
         select p.session, p.deadline from rowlock_hold p
          where h.permits is not null and p.name operator(pg_catalog.=) h.name
            and p.session operator(pg_catalog.=) h.session and p.grant_id operator(pg_catalog.=) h.grant_id) n
        left join rowlock_session m on m.id operator(pg_catalog.=) n.session
        cross join lateral (select least(m.expires_at, n.deadline) as at) until)

-- fragment slice
-- The caller of advisory_wait writes it.
$1

-- fragment call
-- The caller of advisory_wait writes it.
$2

-- fragment refusal
-- The caller of advisory_wait writes it.
$3

-- fragment promised_at(x)
-- Whether lock x promises its next token to a waiter that may believe it has been granted it (reserved_for).
exists (select from rowlock_ticket h join rowlock_session m on m.id = h.session
         where h.grant_id = {x}.successor and {unexpired})

-- fragment waited_at(x)
-- Whether a waiter of lock x goes before a newcomer, for counted takes: one that can be served (stands_at), or a promised
-- one.
(exists (select from rowlock_ticket w join rowlock_session m on m.id = w.session
          where {stands_at({x})} and {waits}) or {promised_at({x})})
