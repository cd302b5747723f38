-- The statements of docs/protocol.md for MariaDB 10.6 and MySQL 8.0 or newer, beside common.sql; in the form of
-- postgresql.sql. They count changed rows, not found ones.

-- fragment now
-- Microseconds since 1970, UTC. SYSDATE is read when it is evaluated, after a wait for a row; UTC_TIMESTAMP is not.
timestampdiff(microsecond, '1970-01-01', sysdate(6))

-- fragment fence_now
-- The same in any time zone, for your transactions.
timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))

-- fragment here
-- Whether session m was opened on this server. A client that refuses clusters meets no other session.
(m.server_identity = '' or substring_index(m.server_identity, ':', -1) = cast(@@global.server_id as char))

-- fragment live
-- Whether session m can be granted anything.
(m.ended = 0 and m.expires_at > {now} and {here})

-- fragment join
straight_join

-- fragment greatest
greatest

-- fragment least
least

-- statement setup_mariadb
-- Five seconds are an example, 60 the most. As text: it cannot be prepared. Whatever the server or init_connect
-- made of these settings, a name must reach its row byte by byte and a statement must do all it says.
set names utf8mb4 collate utf8mb4_bin, session sql_safe_updates = 0, sql_select_limit = 18446744073709551615,
    max_join_size = 18446744073709551615, sql_notes = 1, wait_timeout = 28800, tx_read_only = 0,
    time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES', autocommit = 1, completion_type = 0,
    tx_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = 5, lock_wait_timeout = 5, max_statement_time = 5,
    idle_transaction_timeout = 5

-- statement setup_mysql
-- The same for MySQL.
set names utf8mb4 collate utf8mb4_bin, session sql_safe_updates = 0, sql_select_limit = 18446744073709551615,
    max_join_size = 18446744073709551615, sql_notes = 1, wait_timeout = 28800, transaction_read_only = 0,
    time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES', autocommit = 1, completion_type = 0,
    transaction_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = 5, lock_wait_timeout = 5,
    max_execution_time = 5000

-- statement setup_snapshots
-- Where `facts` lists that variable.
set session innodb_snapshot_isolation = off

-- statement facts
-- → name, value. The page says how they make the identity of the server, and which servers to refuse.
show global variables where variable_name in ('version', 'wsrep_on', 'wsrep_provider', 'server_uuid', 'server_uid',
    'server_id', 'innodb_snapshot_isolation', 'group_replication_group_name')

-- statement meet_server
-- Assignments are made from left to right: what is compared comes last.
-- $1 this server
update rowlock_token_floor
   set floor = if(server_identity = '', floor, floor + 4294967296), raised_at = {now}, server_identity = $1
 where id = 1 and server_identity <> $1 and length($1) > 0

-- statement heartbeat
-- $1 session  $2 the revision we know
update rowlock_session m
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $1 and revision = $2 and ended = 0 and expires_at > {now} and {here}

-- statement fence
-- In your transaction. The inner query reads the transaction's snapshot, the outer one locks the row.
-- $1 name  $2 my session  $3 token
-- → a row if it is held; else roll back
select straight_join 1
  from (select l.name, l.session, l.token
          from rowlock_lock l straight_join rowlock_session s
         where l.name = $1 and l.session = $2 and l.token = $3 and s.id = l.session and s.ended = 0
           and coalesce(l.deadline > {fence_now}, 1)
         limit 1) v
       straight_join rowlock_lock l on l.name = v.name and l.session = v.session and l.token = v.token
  lock in share mode

-- statement lock_lease
-- In one transaction with bump_revision and shorten_lease, before them.
-- $1 name  $2 token  $3 session
select 1 from rowlock_lock where name = $1 and token = $2 and session = $3 for update

-- statement shorten_lease
-- $1 name  $2 session  $3 how long from now, in µs  $4 who asks  $5 why, or NULL
update rowlock_lock l straight_join rowlock_session m
   set l.deadline = least(coalesce(l.deadline, greatest(m.expires_at, {now} + $3)), greatest(m.expires_at, {now} + $3)),
       l.reason = case when not coalesce(l.asked_for = l.grant_id and l.asked_by is null, 0) then $5 end,
       l.asked_by = case when not coalesce(l.asked_for = l.grant_id and l.asked_by is null, 0) then $4 end,
       l.asked_for = l.grant_id
 where l.name = $1 and m.id = $2
