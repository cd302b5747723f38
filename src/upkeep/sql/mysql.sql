-- statement reap_sessions
-- Ends a batch of expired sessions in key order. READ COMMITTED keeps no lock on a row that does not match,
-- so live heartbeats pass.
-- $1 batch
update rowlock_session set ended = 1 where ended = 0 and expires_at <= {now} order by id limit $1

-- statement idle_leases
-- How many rows above the settled floor have been idle past the retention, and their greatest token.
-- $1 retention in µs
select count(*), coalesce(max(l.token), 0)
  from rowlock_lock l, rowlock_token_floor f
 where f.id = 1 and l.session is null and l.used = 0 and l.capacity is null and l.token > f.settled
   and l.changed_at <= {now} - $1
   and not exists (select 1 from rowlock_ticket w where w.name = l.name)

-- statement ended_holders
-- The ended sessions that leases name. Reads the table, once in each round that has ended sessions.
select distinct l.session
  from rowlock_lock l straight_join rowlock_session m
 where l.session is not null and m.id = l.session and m.ended = 1

-- statement orphans
-- A batch of leases that are free by definition but still name a holder.
-- $1 after which name  $2 batch
select l.name, l.token, l.session
  from rowlock_lock l left join rowlock_session s on s.id = l.session
 where l.session is not null and {holder_gone} and l.name > $1
 order by l.name limit $2

-- statement tickets_to_reap
-- A batch of tickets of sessions that are ended or gone. A dead session stays dead.
-- $1 batch
select w.ticket from rowlock_ticket w left join rowlock_session s on s.id = w.session
 where s.id is null or s.ended = 1
 order by w.ticket limit $1

-- statement deletable_leases
-- A batch of idle rows under the settled floor.
-- $1 after which name  $2 retention in µs  $3 batch
select l.name, l.token, l.changed_at
  from rowlock_lock l, rowlock_token_floor f
 where f.id = 1 and l.session is null and l.used = 0 and l.capacity is null and l.token <= f.settled
   and l.changed_at <= {now} - $2
   and l.name > $1
   and not exists (select 1 from rowlock_ticket w where w.name = l.name)
 order by l.name limit $3

-- statement delete_lease
-- Deletes one idle row if it has not changed since.
-- $1 name  $2 token  $3 changed_at
delete from rowlock_lock where name = $1 and token = $2 and session is null and used = 0 and capacity is null and changed_at = $3

-- statement history_there
-- Whether there is a history that this user can see: the catalog shows no other tables. If the user may only
-- read it, the deletion fails.
-- $1 the table's name
-- → 1 or 0
select count(*) from information_schema.tables where table_schema = database() and table_name = $1

-- statement ask_for_lease
-- Waits until a lease's row is free, and then holds it for this statement alone: no transaction is open. Whoever it
-- waits for is who blocks the row (blocking_transactions). Exclusive, since a fence locks it shared.
-- $1 name
select 1 from rowlock_lock where name = $1 for update

-- statement ask_for_permits
-- The same for its holds, one after the other: each that was free is locked while a later one is waited for.
-- $1 name
select 1 from rowlock_hold where name = $1 for update

-- statement ask_for_session
-- The same for the session of a holder.
-- $1 session
select 1 from rowlock_session where id = $1 for update

-- statement sessions_of_name
-- The sessions that hold a lock: a few of a semaphore's.
-- $1 name
select l.session from rowlock_lock l where l.name = $1 and l.session is not null
union
select p.session from rowlock_hold p where p.name = $1
limit 8

-- statement blockers_on_mariadb
-- Which transactions the one of a connection waits for. The server renews the three views together, when nobody has
-- read them for 100 ms. They show times in the server's own zone, so the waiting transaction, which has just begun, is
-- what the age is counted from. Others that wait before
-- it are left out. A transaction whose connection is 0 was prepared (XA), and its connection is gone. Of
-- the list of processes a user without PROCESS sees his own alone.
-- $1 connection id of the waiting transaction
-- → connection id; user; host; state; age in µs; age of the statement in s
select {blocker}
  from information_schema.innodb_trx r
       straight_join information_schema.innodb_lock_waits w on w.requesting_trx_id = r.trx_id
       straight_join information_schema.innodb_trx b on b.trx_id = w.blocking_trx_id
       left join information_schema.processlist p on p.id = b.trx_mysql_thread_id
 where r.trx_mysql_thread_id = $1 and b.trx_state <> 'LOCK WAIT'
 group by b.trx_mysql_thread_id, b.trx_id
 order by 5 desc

-- statement blockers_on_mysql
-- The same on MySQL, which shows who waits for whom elsewhere. Its information_schema.processlist cannot be read while
-- any statement has a character that utf8mb3 lacks (error 3854), its innodb_trx while a transaction's has one: the
-- caller asks again.
-- $1 connection id of the waiting transaction
select {blocker}
  from information_schema.innodb_trx r
       straight_join performance_schema.data_lock_waits w on w.requesting_engine_transaction_id = r.trx_id
       straight_join information_schema.innodb_trx b on b.trx_id = w.blocking_engine_transaction_id
       left join performance_schema.processlist p on p.id = b.trx_mysql_thread_id
 where r.trx_mysql_thread_id = $1 and b.trx_state <> 'LOCK WAIT'
 group by b.trx_mysql_thread_id, b.trx_id
 order by 5 desc

-- statement blocking_candidates
-- For a MySQL without performance_schema: the transactions that have locked rows, of any table, and wait for none.
-- As blockers_on_mariadb.
-- $1 connection id of the waiting transaction
select {blocker}
  from information_schema.innodb_trx r
       straight_join information_schema.innodb_trx b on b.trx_id <> r.trx_id
       left join information_schema.processlist p on p.id = b.trx_mysql_thread_id
 where r.trx_mysql_thread_id = $1 and b.trx_state <> 'LOCK WAIT' and b.trx_rows_locked > 0
 group by b.trx_mysql_thread_id, b.trx_id
 order by 5 desc

-- statement prepared_transactions
-- All transactions that were prepared and neither committed nor rolled back. As text: it cannot be prepared.
-- → format id; length of the global part; length of the branch's; both
xa recover
