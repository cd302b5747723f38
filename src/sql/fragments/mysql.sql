-- Pieces that several statements share, written {name} there.

-- fragment now
-- Microseconds since the epoch. UTC_TIMESTAMP is read when the statement starts, before it waits for
-- a row's lock; SYSDATE when it is evaluated. Our connections set their time zone to UTC.
timestampdiff(microsecond, '1970-01-01', sysdate(6))

-- fragment one_now
-- The time when the statement starts: the same in all rows that it inserts.
{now_in_any_zone}

-- fragment here
-- Whether session m was opened on this server: its identity ends with the server's id, which differs between
-- a primary and its replicas. A replica's data may be older than what the primary before it has granted; so a
-- session of that primary is granted nothing here, and its heartbeat is refused. The nodes of a Galera
-- cluster count as one server, and so do the members of a MySQL group: a write that one of them has not
-- applied yet is certified before its own writes. A group that was founded anew is another server; the
-- floor's row says which one is current. '': opened on a server that does not identify itself.
(m.server_identity = '' or m.server_identity like 'galera:%'
 or m.server_identity like 'group:%'
    and exists (select 1 from rowlock_token_floor f where f.id = 1 and f.server_identity = m.server_identity)
 or substring_index(m.server_identity, ':', -1) = cast(@@global.server_id as char))

-- fragment live
-- Whether session m can be granted anything. Every statement that grants asks this of the session that gets
-- the lease, as (select 1 from rowlock_session m where m.id = … and {live}) = 1:
-- - At READ COMMITTED the subqueries of a single-table UPDATE and of INSERT … SELECT lock nothing, so no
--   heartbeat waits for a grant and no grant for a heartbeat. A scalar subquery is not a semi-join: an optimizer
--   that makes a join of EXISTS or IN makes a multi-table UPDATE of it, which would lock what it reads.
-- - The subquery sees what was committed when the statement began, or later. A session that ends afterwards
--   leaves a lease that names an ended session, which is free; one that expires afterwards is ended by the
--   next taker, through the row that its heartbeat writes (I3).
-- - The sender of the statement takes "no row changed" for a lost race and reads again; that read shows
--   whose session is over, and another waiter.
(m.ended = 0 and m.expires_at > {now} and {here})

-- fragment now_in_any_zone
-- The same as now, for a connection of the caller in any time zone. It is read when the statement starts,
-- before a wait: used only where a stale time does no harm. A deadline that passes during the wait for a row
-- leaves that row ours, and locked; changed_at is off by the wait.
timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))

-- fragment is_current
-- Whether lease l is the grant $1 name, $2 session, $3 token, and session s has not ended.
l.name = $1 and l.session = $2 and l.token = $3 and s.id = l.session and s.ended = 0
   and coalesce(l.deadline > {now_in_any_zone}, 1)

-- fragment is_current_hold
-- Whether hold l of permits is the grant $1 name, $2 session, $3 grant id, and session s has not ended.
l.name = $1 and l.session = $2 and l.grant_id = $3 and s.id = l.session and s.ended = 0
   and coalesce(l.deadline > {now_in_any_zone}, 1)

-- fragment waited_here
-- Whether a waiter waits for the lease l that can be served.
exists (select 1 from rowlock_ticket w straight_join rowlock_session m
         where w.name = l.name and m.id = w.session and {waits})

-- fragment take_all
-- Grants up to 16 free leases to one live session. Compare-and-set on each row's probed token, as take.
-- FORCE INDEX: locks rows by primary key and no others, however few there are; a scan would lock them all.
-- Assignments are evaluated left to right: acquired_at holds the row's index among the sixteen until it gets
-- its value.
update rowlock_lock l force index (primary)
   set acquired_at = field(l.name, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
                                   $17, $18),
       token = greatest(token, $2) + 1, session = $1,
       grant_id = elt(acquired_at, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46,
                                   $47, $48, $49, $50),
       thread = elt(acquired_at, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63,
                                 $64, $65, $66),
       note = elt(acquired_at, $67, $68, $69, $70, $71, $72, $73, $74, $75, $76, $77, $78, $79,
                               $80, $81, $82),
       deadline = {now} + cast(elt(acquired_at, $83, $84, $85, $86, $87, $88, $89, $90, $91,
                                                  $92, $93, $94, $95, $96, $97, $98) as signed),
       acquired_at = {now}, changed_at = {now}
 where (select 1 from rowlock_session m where m.id = $1 and {live}) = 1 and
      (l.name = $3 and l.token = $19 or l.name = $4 and l.token = $20 or
       l.name = $5 and l.token = $21 or l.name = $6 and l.token = $22 or
       l.name = $7 and l.token = $23 or l.name = $8 and l.token = $24 or
       l.name = $9 and l.token = $25 or l.name = $10 and l.token = $26 or
       l.name = $11 and l.token = $27 or l.name = $12 and l.token = $28 or
       l.name = $13 and l.token = $29 or l.name = $14 and l.token = $30 or
       l.name = $15 and l.token = $31 or l.name = $16 and l.token = $32 or
       l.name = $17 and l.token = $33 or l.name = $18 and l.token = $34)

-- fragment release_all
-- Frees up to 16 leases of one session, those that are still these very grants and have no visible waiter. A
-- grant id belongs to one grant of one name: there is no need to compare them in pairs.
update rowlock_lock l force index (primary)
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.grant_id in ($18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                      $33)
   and l.session = $1
   and coalesce({waited_here}, 1) = 0

-- fragment history
-- The columns that read_history reads of record h: times in µs since 1970, and the age of each record.
h.id, {micros(h.at)}, {now_in_any_zone} - {micros(h.at)}, h.kind, h.name, h.token, h.session, h.grant_id, h.ticket, h.previous_session,
{micros(h.ends_at)}, h.owner, h.host, h.pid, h.program, h.note, h.db_user, case when h.permits is not null then {is_mode(h)} end, h.permits, h.reason, {held_now}

-- fragment bounded_update
-- The same for a write. MySQL bounds none: a statement that locks the row by a read comes before it.
update

-- fragment mariadb_select
-- {longest} seconds at most, and no limit of the caller's on what a select may read or return.
set statement max_statement_time = {longest}, max_join_size = 18446744073709551615, sql_select_limit = 18446744073709551615 for select

-- fragment mariadb_update
-- {longest} seconds at most.
set statement max_statement_time = {longest} for update

-- fragment mysql_select
-- {longest} milliseconds at most. At SERIALIZABLE every read takes locks, and may wait for them. As in
-- mariadb_select, no other limit.
select /*+ MAX_EXECUTION_TIME({longest}) SET_VAR(max_join_size = 18446744073709551615) SET_VAR(sql_select_limit = 18446744073709551615) */

-- fragment idle_limit
-- The session variable that limits how long a transaction may be idle. On MariaDB: idle_transaction_timeout.
wait_timeout

-- fragment join
-- A join that reads its left side first.
straight_join

-- fragment blocker
-- What is shown of transaction b, which keeps rows from transaction r, and of its connection p (blockers_on_mariadb).
b.trx_mysql_thread_id, coalesce(max(p.user), ''), coalesce(max(p.host), ''),
coalesce(max(case when p.command = 'Sleep' then 'idle in a transaction'
                  else concat(p.command, ': ', coalesce(p.state, '')) end), ''),
max(timestampdiff(microsecond, b.trx_started, r.trx_started)), max(p.time)

-- fragment greatest
-- The function that returns the greatest of its arguments.
greatest

-- fragment integer(x)
-- A value of an integer column, which can be nothing else.
{x}

-- fragment least
-- The function that returns the least of its arguments.
least

-- fragment stated
-- Every setting that our statements, our drivers and the migrations rely on: each may have another default on the
-- server, or by init_connect. The collation: a literal and a parameter that we send have one of the server's for
-- utf8mb4 each, and only utf8mb4_bin yields to none and conflicts with none. sql_mode: nothing is truncated silently,
-- assignments are evaluated in turn, '' is not NULL. No chained transactions, or what follows a COMMIT would never be
-- committed. The isolation level is the one that the protocol is proved for. SYSDATE reads the zone. A statement
-- that the client may have given up ends; MySQL bounds only SELECT so, and waits for locks: lock_wait_timeout is for
-- those of tables. Each limit on idle connections is longer than any heartbeat takes. MariaDB reads what follows /*M!,
-- MySQL what follows /*!80000.
names utf8mb4 collate utf8mb4_bin, session sql_mode = 'STRICT_ALL_TABLES',
autocommit = 1, completion_type = 0, time_zone = '+00:00', timestamp = default,
sql_safe_updates = 0, sql_select_limit = 18446744073709551615,
max_join_size = 18446744073709551615, sql_big_selects = 1, sql_auto_is_null = 0, sql_notes = 1,
unique_checks = 1, foreign_key_checks = 1, div_precision_increment = 4, max_sort_length = 1024,
lc_messages = 'en_US', lock_wait_timeout = {metadata_wait}, net_read_timeout = 30,
net_write_timeout = 60,
wait_timeout = {idle}, innodb_lock_wait_timeout = {lock_wait}{snapshots}
/*M! , tx_isolation = 'READ-COMMITTED', tx_read_only = 0, check_constraint_checks = 1,
     alter_algorithm = 'DEFAULT', max_statement_time = {seconds},
     idle_transaction_timeout = {seconds}, idle_write_transaction_timeout = 0,
     idle_readonly_transaction_timeout = 0 */
/*!80000 , transaction_isolation = 'READ-COMMITTED', transaction_read_only = 0,
           max_execution_time = {thousandths} */

-- fragment idle
-- The caller of state_settings writes these six.
28800

-- fragment lock_wait
-- In seconds.
50

-- fragment metadata_wait
-- In seconds: for the locks of tables and of the server, which LOCK TABLES, FLUSH TABLES and ALTER TABLE take.
86400

-- fragment snapshots
-- For a MariaDB that has the setting: no such isolation.

-- fragment seconds
-- The limit on a statement. 0: none.
0

-- fragment thousandths
-- The same in milliseconds.
0

-- fragment token_of_move(x)
-- The token of lock x as it changes hands, or its deadline, without a grant. One is skipped: the row may be what a server
-- crash has left. A commit that other clients have seen and the disk has not may have handed the lease over, and a client
-- may have received that token.
{next_token({x})} + 1

-- fragment now_after(x)
-- Now, in a column whose time x is, but not the same: an update that changes nothing commits nothing.
greatest({now}, {x} + 1)

-- fragment text(x)
-- A text that compares as our columns do.
cast({x} as binary)

-- fragment for_update_now
-- Locks the rows that are read, but for those that another transaction has locked.
for update skip locked

-- fragment in_ticket_order
-- FORCE INDEX: for ORDER BY … LIMIT 1 the optimizer tends to read the primary key, past every other queue.
force index (rowlock_ticket_name_ticket)

-- fragment by_key
-- FORCE INDEX: rows by primary key and no others, however few there are.
force index (primary)
