-- statement reap_sessions
-- Ends a batch of expired sessions. Skips rows that a heartbeat or another reaper has locked.
-- $1 batch
with k as materialized (
         select id from rowlock_session
          where not ended and expires_at <= clock_timestamp()
          order by id limit $1::bigint for update skip locked),
     c as materialized (
         select id, clock_timestamp() as now from k)
update rowlock_session m set ended = true
  from c where m.id = c.id and not m.ended and m.expires_at <= c.now

-- statement idle_leases
-- How many rows above the settled floor, in some pages, have been idle past the retention, and their greatest
-- token, a promised one included. A row that changes while the reaper goes from page to page is counted twice
-- or not at all: the floor may be anywhere, since a row is deleted only by its own token.
-- $1 retention in µs  $2 page from which  $3 before which page
select count(*), coalesce(max(l.token + (l.successor is not null)::int), 0)
  from rowlock_lock l, rowlock_token_floor f
 where f.id = 1 and l.session is null and l.used = 0 and l.capacity is null
   and l.token + (l.successor is not null)::int > f.settled
   and l.ctid >= ('(' || $2::bigint::text || ',0)')::tid and l.ctid < ('(' || $3::bigint::text || ',0)')::tid
   and l.changed_at <= clock_timestamp() - $1::bigint::float8 * interval '1 microsecond'
   and not exists (select from rowlock_ticket w where w.name = l.name)

-- statement ended_holders
-- The ended sessions that leases in some pages name: the rows of those leases were kept locked.
-- $1 page from which  $2 before which page
select distinct l.session
  from rowlock_lock l join rowlock_session m on m.id = l.session
 where l.ctid >= ('(' || $1::bigint::text || ',0)')::tid and l.ctid < ('(' || $2::bigint::text || ',0)')::tid
   and l.session is not null and m.ended

-- statement delete_ended_sessions
-- Deletes ended sessions that were seen to be referenced by nothing since. An acquire that was in flight when
-- its session ended may still write the id afterwards: a lease whose session is missing is free. Rows that
-- another reaper has locked are left alone.
-- $1 ids, as {1,2,3}
with k as materialized (
         select m.id from rowlock_session m
          where m.id = any ($1::text::bigint[]) and m.ended
          order by m.id for update skip locked)
delete from rowlock_session m using k where m.id = k.id

-- statement delete_leases
-- Deletes a batch of idle rows under the settled floor, in some pages, in physical order.
-- By pages and not by names: each page is read, logged and written once, not once for each of its rows, and
-- the plan cannot be another when the table is large. A row never changes its place while it is idle; one
-- that was in use meanwhile moves, is not idle then, and another round sees it.
-- The lock (k) re-checks the row's own columns, so a row that was granted since the statement began stays,
-- also if it was released again: changed_at is new. Rows locked by an acquire in progress or by another
-- reaper are left alone, as are names with tickets. Once k has a row no other transaction can change it, so
-- its ctid still names it in d. A row version younger than the statement's snapshot is not found by d and
-- stays.
-- An acquire that meets a row between its deletion and the commit waits for the commit, then inserts the name
-- anew with a token above the floor; no statement from before that floor still runs (publish_floor).
-- The commit is asynchronous: after a server crash rows may reappear, free, with tokens under the floor, and
-- are deleted once more. A later grant of the name is durable and, since the log has an order, so is the
-- deletion before it.
-- $1 batch  $2 retention in µs  $3 page  $4 row in it, after which  $5 before which page
-- → how many were deleted; page and row of the last one examined, NULL if these pages have no more
with k as materialized (
         select l.ctid as place from rowlock_lock l
          where l.ctid > ('(' || $3::bigint::text || ',' || $4::bigint::text || ')')::tid
            and l.ctid < ('(' || $5::bigint::text || ',0)')::tid
            and l.session is null and l.used = 0 and l.capacity is null and l.token + (l.successor is not null)::int
                <= (select f.settled from rowlock_token_floor f)
            and l.changed_at <= clock_timestamp() - $2::bigint::float8 * interval '1 microsecond'
            and not exists (select from rowlock_ticket w where w.name = l.name)
          order by l.ctid limit $1::bigint for update of l skip locked),
     c as materialized (
         select set_config('synchronous_commit', 'off', true)),
     d as (
         delete from rowlock_lock l using c
          where l.ctid = any (array(select k.place from k)) returning 1)
select (select count(*) from d), {last_of_k}

-- statement lease_pages
-- How many pages the table of leases has, and the fewest that a statement over some of them should cover:
-- before PostgreSQL 14 a condition on ctid reads the whole table, so one statement covers them all. The table
-- is found by one of its rows; without any there is nothing to do.
select coalesce(pg_catalog.pg_relation_size(t.id) / current_setting('block_size')::bigint, 0),
       case when current_setting('server_version_num')::int >= 140000 then 1
            else coalesce(pg_catalog.pg_relation_size(t.id) / current_setting('block_size')::bigint, 0) end
  from (select (select l.tableoid from rowlock_lock l limit 1) as id) t

-- statement reap_leases
-- Frees a batch of leases, in some pages and in physical order, that are free by definition but still name a
-- holder (why by pages: delete_leases). Judged in k, then locked in `locked` by compare-and-set on the row's
-- own token and session: a lease that was granted again meanwhile has another token. Locked rows (a fenced
-- transaction) are left for another round. Once `locked` has a row no other transaction can change it, so its
-- ctid still names it.
-- acquired_at stays: by it the history distinguishes this from a release (migrations/*/history/on.sql).
-- $1 batch  $2 page  $3 row in it, after which  $4 before which page
-- → how many were freed; page and row of the last one examined, NULL if these pages have no more
with k as materialized (
         select l.ctid as place, l.name, l.token, l.session
           from rowlock_lock l left join rowlock_session s on s.id = l.session
          where l.ctid > ('(' || $2::bigint::text || ',' || $3::bigint::text || ')')::tid
            and l.ctid < ('(' || $4::bigint::text || ',0)')::tid
            and l.session is not null and {holder_gone}
          order by l.ctid limit $1::bigint),
     locked as materialized (
         select l.ctid as place from k join rowlock_lock l
                on l.name = k.name and l.token = k.token and l.session = k.session
          where l.ctid = any (array(select k.place from k))
          order by l.ctid for update of l skip locked),
     u as (
         update rowlock_lock l
            set session = null, grant_id = null, thread = null, note = null,
                deadline = null, changed_at = clock_timestamp()
          where l.ctid = any (array(select locked.place from locked)) returning 1)
select (select count(*) from u), {last_of_k}

-- statement reap_tickets
-- Removes a batch of tickets of sessions that are ended or gone. A dead session stays dead, so the judgement
-- cannot become stale.
-- $1 batch
with k as materialized (
         select w.name, w.ticket
           from rowlock_ticket w left join rowlock_session s on s.id = w.session
          where s.id is null or s.ended
          order by w.ticket limit $1::bigint for update of w skip locked)
delete from rowlock_ticket w using k where w.name = k.name and w.ticket = k.ticket

-- statement history_there
-- Whether there is a history that this user may read and delete from.
-- $1 the table's name, with its schema if it has one
-- → 1 or 0
select coalesce(pg_catalog.has_table_privilege(to_regclass($1::text), 'select')
                and pg_catalog.has_table_privilege(to_regclass($1::text), 'delete'), false)::int

-- statement blocking_transactions
-- The running transactions that have locked a row of one name, or changed it without a commit. A row's xmax names its
-- latest locker: a transaction, or a set of them (a multixact), whose members the server lists. The two kinds of number
-- overlap, so both readings are tried: a transaction that runs holds a lock on its own number, and one that does not is
-- left out by that. A multixact is looked up only in the range that the server still has: elsewhere it is an error.
-- A savepoint's number that was released, or prepared, is locked no more: if the server still calls it in progress, the
-- candidates are all transactions that have locked rows of that table (exact = 0). Its number in 64 bits is the one next
-- to the latest snapshot's end; those a little beyond that have begun and not ended.
-- Reads alone, and waits for nothing.
-- A prepared transaction has no process; until the server restarts it keeps the virtual number of the one that
-- prepared it, so its own number is found among the locks of that.
-- $1 name
-- → 1 prepared, 0 not; pid; gid; user; application name; state; age in µs; age of the statement in µs; database; whether
--   this user may see the rest of an ordinary one; exact
with rows as materialized (
         select l.xmax as xid, l.tableoid as of from rowlock_lock l
          where l.name operator(pg_catalog.=) $1::pg_catalog.text
         union all
         select s.xmax, s.tableoid
           from rowlock_lock l join rowlock_session s on s.id operator(pg_catalog.=) l.session
          where l.name operator(pg_catalog.=) $1::pg_catalog.text
         union all
         select p.xmax, p.tableoid from rowlock_hold p where p.name operator(pg_catalog.=) $1::pg_catalog.text
         union all
         select s.xmax, s.tableoid
           from rowlock_hold p join rowlock_session s on s.id operator(pg_catalog.=) p.session
          where p.name operator(pg_catalog.=) $1::pg_catalog.text),
     server as materialized (
         select (select pg_catalog.max(pg_catalog.mxid_age(d.datminmxid)) from pg_catalog.pg_database d) as oldest,
                pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) as next),
     lockers as materialized (
         select r.xid, r.of from rows r
         union all
         select m.xid, r.of
           from rows r, server o,
                lateral pg_catalog.pg_get_multixact_members(
                    case when pg_catalog.mxid_age(r.xid) operator(pg_catalog.>=) 1
                          and pg_catalog.mxid_age(r.xid) operator(pg_catalog.<=) o.oldest
                         then r.xid end) m),
     found as materialized (
         select distinct x.pid, x.virtualtransaction
           from lockers k, pg_catalog.pg_locks x
          where x.locktype operator(pg_catalog.=) 'transactionid' and x.granted
            and x.mode operator(pg_catalog.=) 'ExclusiveLock'
            and x.transactionid operator(pg_catalog.=) k.xid),
     widened as materialized (
         select k.xid, k.of, o.next,
                o.next operator(pg_catalog.-) 2147483648::bigint operator(pg_catalog.+)
                ((k.xid::pg_catalog.text::bigint operator(pg_catalog.-) o.next operator(pg_catalog.+) 2147483648::bigint)
                 operator(pg_catalog.&) 4294967295::bigint) as wide
           from lockers k, server o
          where k.xid::pg_catalog.text::bigint operator(pg_catalog.>=) 3),
     candidates as materialized (
         select distinct t.pid, t.virtualtransaction
           from widened w, pg_catalog.pg_locks t
          where case when w.wide operator(pg_catalog.<) 3 then false
                     when w.wide operator(pg_catalog.>=) w.next
                     then w.wide operator(pg_catalog.-) w.next operator(pg_catalog.<) 1000000
                     else pg_catalog.txid_status(w.wide) operator(pg_catalog.=) 'in progress' end
            and not exists (select from pg_catalog.pg_locks x
                             where x.locktype operator(pg_catalog.=) 'transactionid'
                               and x.transactionid operator(pg_catalog.=) w.xid)
            and t.locktype operator(pg_catalog.=) 'relation' and t.granted
            and t.relation operator(pg_catalog.=) w.of
            and t.mode operator(pg_catalog.=) any (array['RowShareLock', 'RowExclusiveLock'])),
     running as materialized (
         select r.pid, r.virtualtransaction, pg_catalog.max(r.exact) as exact
           from (select f.pid, f.virtualtransaction, 1 as exact from found f
                 union all select c.pid, c.virtualtransaction, 0 from candidates c) r
          where coalesce(r.pid operator(pg_catalog.<>) pg_catalog.pg_backend_pid(), true)
          group by r.pid, r.virtualtransaction)
select 0, a.pid, '', coalesce(a.usename::pg_catalog.text, ''), coalesce(a.application_name, ''),
       coalesce(a.state, ''),
       (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) a.xact_start)
        operator(pg_catalog.*) 1000000::pg_catalog.float8)::bigint,
       (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) a.query_start)
        operator(pg_catalog.*) 1000000::pg_catalog.float8)::bigint,
       coalesce(a.datname::pg_catalog.text, ''), (a.state is not null)::int, r.exact
  from running r join pg_catalog.pg_stat_activity a on a.pid operator(pg_catalog.=) r.pid
union all
select 1, null, p.gid, p.owner::pg_catalog.text, '', '',
       (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) p.prepared)
        operator(pg_catalog.*) 1000000::pg_catalog.float8)::bigint, null, p.database::pg_catalog.text, 1, r.exact
  from running r
       join pg_catalog.pg_locks t
         on t.virtualtransaction operator(pg_catalog.=) r.virtualtransaction and t.pid is null
        and t.locktype operator(pg_catalog.=) 'transactionid'
       join pg_catalog.pg_prepared_xacts p on p.transaction operator(pg_catalog.=) t.transactionid
 where r.pid is null
 order by 7 desc nulls last

-- statement prepared_transactions
-- The prepared transactions of this database that have used one of our tables to lock or write rows: they hold the
-- table's lock of that mode to their end.
-- $1 $2 $3 the tables' names, with the schema if there is one
-- → as blocking_transactions
select distinct 1, null::int, p.gid, p.owner::pg_catalog.text, '', '',
       (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) p.prepared)
        operator(pg_catalog.*) 1000000::pg_catalog.float8)::bigint, null::bigint, p.database::pg_catalog.text, 1, 1
  from pg_catalog.pg_prepared_xacts p
       join pg_catalog.pg_locks t
         on t.transactionid operator(pg_catalog.=) p.transaction and t.pid is null
        and t.locktype operator(pg_catalog.=) 'transactionid'
       join pg_catalog.pg_locks l
         on l.virtualtransaction operator(pg_catalog.=) t.virtualtransaction and l.pid is null
        and l.locktype operator(pg_catalog.=) 'relation'
        and l.mode operator(pg_catalog.=) any (array['RowShareLock', 'RowExclusiveLock'])
 where p.database operator(pg_catalog.=) pg_catalog.current_database()
   and l.relation operator(pg_catalog.=) any (array[
           pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid, pg_catalog.to_regclass($2::pg_catalog.text)::pg_catalog.oid,
           pg_catalog.to_regclass($3::pg_catalog.text)::pg_catalog.oid])
 order by 7 desc nulls last
