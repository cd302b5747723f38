-- statement reap_sessions
-- Ends a batch of expired sessions.
-- $1 batch
update rowlock_session set ended = 1
 where id in (select id from rowlock_session where ended = 0 and expires_at <= {now} limit $1)

-- statement idle_leases
-- How many rows above the settled floor, among some names, have been idle past the retention, and their
-- greatest token. A row that changes while the reaper goes on may be counted or not: the floor may be
-- anywhere, since a row is deleted only by its own token.
-- $1 retention in µs  $2 after which name  $3 up to which, NULL = to the last
select count(*), coalesce(max(l.token), 0)
  from rowlock_lock l
 where l.name > $2 and l.name <= coalesce($3, x'ff') and l.session is null and l.used = 0 and l.capacity is null
   and l.token > (select f.settled from rowlock_token_floor f where f.id = 1)
   and l.changed_at <= {now} - $1
   and not exists (select 1 from rowlock_ticket w where w.name = l.name)

-- statement ended_holders
-- The ended sessions that leases name, among some names.
-- $1 after which name  $2 up to which, NULL = to the last
select distinct l.session
  from rowlock_lock l cross join rowlock_session m
 where l.name > $1 and l.name <= coalesce($2, x'ff') and m.id = l.session and m.ended = 1

-- statement delete_leases
-- Deletes idle rows under the settled floor, among some names; names with tickets are left alone. The range
-- has so few rows that the file is not locked for long, however large the table.
-- $1 retention in µs  $2 after which name  $3 up to which, NULL = to the last
delete from rowlock_lock
 where name > $2 and name <= coalesce($3, x'ff') and session is null and used = 0 and capacity is null
   and token <= (select f.settled from rowlock_token_floor f where f.id = 1)
   and changed_at <= {now} - $1
   and not exists (select 1 from rowlock_ticket w where w.name = rowlock_lock.name)

-- statement next_name
-- The name a given number of rows behind another; no row if fewer follow.
-- $1 name  $2 how many, from 1
select l.name from rowlock_lock l where l.name > $1 order by l.name limit 1 offset $2 - 1

-- statement reap_leases
-- Frees leases that are free by definition but still name a holder, among some names. The range has so few
-- rows that the file is not locked for long, however large the table.
-- acquired_at stays: by it the history distinguishes this from a release (migrations/*/history/on.sql).
-- $1 after which name  $2 up to which, NULL = to the last
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, deadline = null, changed_at = {now}
 where name in (select l.name
                  from rowlock_lock l left join rowlock_session s on s.id = l.session
                 where l.name > $1 and l.name <= coalesce($2, x'ff')
                   and l.session is not null and {holder_gone})

-- statement reap_tickets
-- Removes a batch of tickets of sessions that are ended or gone.
-- $1 batch
delete from rowlock_ticket
 where ticket in (select w.ticket
                    from rowlock_ticket w left join rowlock_session s on s.id = w.session
                   where s.id is null or s.ended = 1 limit $1)

-- statement history_there
-- Whether there is a history.
-- $1 the table's name
-- → 1 or 0
select count(*) from sqlite_master where type = 'table' and name = $1

-- statement database_file
-- Where the file of the main database is; empty for one in memory.
select file from pragma_database_list where name = 'main'
