-- Pieces that several statements share, written {name} there.
--
-- SQLite has one writer, and a statement that writes has the file to itself from its first read to its
-- commit. A step that needs compare-and-set elsewhere is one statement here.

-- fragment now
-- Microseconds since the epoch, in steps of a millisecond; read after the wait for the file.
cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000

-- fragment one_now
-- The same in all rows that a statement inserts, as now is here.
{now}

-- fragment live
-- Whether session m can be granted anything.
(m.ended = 0 and m.expires_at > {now})

-- fragment history
-- The columns that read_history reads of record h: times in µs since 1970, and the age of each record.
h.id, {micros(h.at)}, {since(h.at)}, h.kind, h.name, h.token, h.session, h.grant_id, h.ticket, h.previous_session,
{micros(h.ends_at)}, h.owner, h.host, h.pid, h.program, h.note, '', case when h.permits is not null then {is_mode(h)} end, h.permits, h.reason, {held_now}

-- fragment now_in_any_zone
-- There is one zone.
{now}

-- fragment join
-- A join that reads its left side first.
cross join

-- fragment greatest
-- The function that returns the greatest of its arguments.
max

-- fragment integer(x)
-- A value of an integer column as an integer: SQLite keeps there whatever was written, also a text.
cast({x} as integer)

-- fragment least
-- The function that returns the least of its arguments.
min

-- fragment for_update
-- The file has one writer, who locks all of it.

-- fragment for_update_now
-- As for_update.

-- fragment in_ticket_order
-- The planner reads the index by (name, ticket).

-- fragment by_key
-- The planner reads by primary key.

-- fragment here
-- Whether session m was opened on this server: there is none but the file.
1 = 1
