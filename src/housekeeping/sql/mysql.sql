-- statement reap_sessions
-- Ends a batch of expired sessions in key order. READ COMMITTED keeps no lock on a row that does not match,
-- so live heartbeats pass.
-- $1 batch
update rowlock_session set ended = 1 where ended = 0 and expires_at <= {now} order by id limit $1

-- statement idle_leases
-- How many rows above the settled floor have been idle past the retention, and their greatest token.
-- $1 retention in µs
select count(*), coalesce(max(l.token), 0)
  from rowlock_lease l, rowlock_token_floor f
 where f.id = 1 and l.session is null and l.token > f.settled and l.changed_at <= {now} - $1
   and not exists (select 1 from rowlock_waiter w where w.name = l.name)

-- statement read_floor
-- The token floor, and the server it was raised for. No row: it was deleted, and nothing can be granted.
select floor, server_identity from rowlock_token_floor where id = 1

-- statement ended_holders
-- The ended sessions that leases name. Reads the table, once in each round that has ended sessions.
select distinct l.session
  from rowlock_lease l straight_join rowlock_session m
 where l.session is not null and m.id = l.session and m.ended = 1

-- statement delete_ended_session
-- Deletes one ended session. An acquire that was in flight when its session ended may still write the id
-- afterwards: a lease whose session is missing is free.
-- $1 session
delete from rowlock_session where id = $1 and ended = 1

-- statement orphans
-- A batch of leases that are free by definition but still name a holder.
-- $1 after which name  $2 batch
select l.name, l.token, l.session
  from rowlock_lease l left join rowlock_session s on s.id = l.session
 where l.session is not null and {free} and l.name > $1
 order by l.name limit $2

-- statement free_orphan
-- Frees one orphan by compare-and-set: a lease that was granted again meanwhile has another token.
-- acquired_at stays: by it the history distinguishes this from a release (migrations/*/history/on.sql).
-- $1 name  $2 token  $3 session
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, deadline = null, changed_at = {now}
 where name = $1 and token = $2 and session = $3

-- statement dead_waiters
-- A batch of tickets of sessions that are ended or gone. A dead session stays dead.
-- $1 batch
select w.ticket from rowlock_waiter w left join rowlock_session s on s.id = w.session
 where s.id is null or s.ended = 1
 order by w.ticket limit $1

-- statement deletable_leases
-- A batch of idle rows under the settled floor.
-- $1 after which name  $2 retention in µs  $3 batch
select l.name, l.token, l.changed_at
  from rowlock_lease l, rowlock_token_floor f
 where f.id = 1 and l.session is null and l.token <= f.settled and l.changed_at <= {now} - $2
   and l.name > $1
   and not exists (select 1 from rowlock_waiter w where w.name = l.name)
 order by l.name limit $3

-- statement delete_lease
-- Deletes one idle row if it has not changed since.
-- $1 name  $2 token  $3 changed_at
delete from rowlock_lease where name = $1 and token = $2 and session is null and changed_at = $3

-- statement history_there
-- Whether there is a history that this user can see: the catalog shows no other tables. If the user may only
-- read it, the deletion fails.
-- $1 the table's name
-- → 1 or 0
select count(*) from information_schema.tables where table_schema = database() and table_name = $1
