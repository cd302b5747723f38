-- statement advisory_holder_status
-- Whether this session still holds a lock, and how many other sessions wait for it: a reader that joined
-- past a waiting writer could keep that writer out indefinitely.
-- $1 key  $2 1 if the key is a pair of integers
select count(*) filter (where l.granted and l.pid = pg_backend_pid()),
       count(*) filter (where not l.granted),
       pg_backend_pid()
  from pg_locks l
 where l.locktype = 'advisory'
   and l.classid = (($1::bigint >> 32) & 4294967295)::oid
   and l.objid = ($1::bigint & 4294967295)::oid
   and l.objsubid = case when $2::int = 1 then 2 else 1 end
   and l.database = (select oid from pg_database where datname = current_database())

-- statement advisory_held
-- Every advisory lock that this session holds, one row each, with the process and the server's role;
-- one row with NULLs if it holds none. The two halves of a key are put together as they were locked.
select pg_backend_pid(),
       pg_is_in_recovery()::int,
       (l.classid::bigint << 32) | l.objid::bigint,
       (l.objsubid = 2)::int,
       (l.mode = 'ShareLock')::int
  from (select 1) as one
  left join pg_locks l
    on l.locktype = 'advisory' and l.pid = pg_backend_pid() and l.granted
   and l.database = (select oid from pg_database where datname = current_database())

-- statement advisory_setup
-- Settings of a connection that holds advisory locks, and its server process id. Server-side keepalives
-- notice a vanished client machine after about 25 s. An idle session limit of the server's (since 14) would
-- end our locks, so ours replaces it, or none.
-- Also sets a mark by which every statement that locks or unlocks recognizes this server process before it
-- acts. A process that already holds advisory locks is refused and keeps its mark: either another client
-- owns it behind a transaction pooler, or it has leftover locks that it would grant once more. So a process
-- holds only locks of the client whose mark it bears, however a pooler hands it around, because a process
-- runs one statement at a time.
-- $1 statement timeout in ms  $2 idle session timeout in ms, 0 = none  $3 mark
select pg_catalog.pg_backend_pid(),
       case when exists (select from pg_catalog.pg_locks where locktype operator(pg_catalog.=) 'advisory'
                            and pid operator(pg_catalog.=) pg_catalog.pg_backend_pid())
            then 0 else pg_catalog.length(pg_catalog.set_config('rowlock.session', $3::pg_catalog.text, false)) end,
       {stated},
       pg_catalog.set_config('statement_timeout', $1::pg_catalog.text, false),
       pg_catalog.set_config('lock_timeout', '0', false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', $1::pg_catalog.text, false),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),
       pg_catalog.set_config('tcp_keepalives_idle', '10', false),
       pg_catalog.set_config('tcp_keepalives_interval', '5', false),
       pg_catalog.set_config('tcp_keepalives_count', '3', false),
       (select pg_catalog.set_config(name, $2::pg_catalog.text, false)
          from pg_catalog.pg_settings where name operator(pg_catalog.=) 'idle_session_timeout'
           and $2::pg_catalog.text operator(pg_catalog.<>) '0')

-- statement advisory_try
-- One attempt at a session-level lock: 1 ours, 0 held by another session, -1 refused by a standby, which
-- would grant it independently of its primary. The statement that locks also checks the server's role,
-- which may have just changed. CASE evaluates only the branch it takes. Behind a transaction pooler the
-- process changes between statements, and the lock would stay with a process that is not ours: without our
-- mark the statement returns 0 and locks nothing.
-- Session-level locks ignore transactions: the lock is ours when the function returns, even if the reply is
-- lost.
-- $1 key  $2 1 if the key is a pair of integers, the first in its upper half  $3 1 = shared
-- $4 mark
select case when current_setting('rowlock.session', true) is distinct from $4::text then 0
            when pg_is_in_recovery() then -1
            when $2::int = 0 and $3::int = 0 then pg_try_advisory_lock($1::bigint)::int
            when $2::int = 0 then pg_try_advisory_lock_shared($1::bigint)::int
            when $3::int = 0 then pg_try_advisory_lock(($1::bigint >> 32)::int,
                     (($1::bigint << 32) >> 32)::int)::int
            else pg_try_advisory_lock_shared(($1::bigint >> 32)::int,
                     (($1::bigint << 32) >> 32)::int)::int end,
       case when current_setting('rowlock.session', true) = $4::text then pg_backend_pid()
            else 0 end

-- statement advisory_try_in
-- One attempt at a transaction-level lock in the caller's transaction. The same statement checks the
-- reasons to refuse before it locks. Above READ COMMITTED this very statement has taken the snapshot of the
-- whole transaction before the lock, so the data that the lock protects would be read stale.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- $1 key  $2 1 if the key is a pair of integers  $3 1 = shared  $4 1 = any isolation will do
select case when pg_catalog.pg_is_in_recovery() then 'standby'
            when $4::int operator(pg_catalog.=) 0
             and pg_catalog.current_setting('transaction_isolation')
                 operator(pg_catalog.<>) all (array['read committed', 'read uncommitted'])
            then 'isolation'
            when case when $2::int operator(pg_catalog.=) 0 and $3::int operator(pg_catalog.=) 0 then pg_catalog.pg_try_advisory_xact_lock($1::bigint)
                      when $2::int operator(pg_catalog.=) 0 then pg_catalog.pg_try_advisory_xact_lock_shared($1::bigint)
                      when $3::int operator(pg_catalog.=) 0 then pg_catalog.pg_try_advisory_xact_lock(
                               ($1::bigint operator(pg_catalog.>>) 32)::int,
                               ($1::bigint operator(pg_catalog.<<) 32 operator(pg_catalog.>>) 32)::int)
                      else pg_catalog.pg_try_advisory_xact_lock_shared(
                               ($1::bigint operator(pg_catalog.>>) 32)::int,
                               ($1::bigint operator(pg_catalog.<<) 32 operator(pg_catalog.>>) 32)::int) end
            then 'ours' else 'busy' end

-- statement advisory_unlock
-- Releases a session-level lock: 1 done, 0 it was not ours. Without our mark (see advisory_setup) the
-- process belongs to another client, and so would the lock.
-- $1 key  $2 1 if the key is a pair of integers, the first in its upper half  $3 1 = shared
-- $4 mark
select case when current_setting('rowlock.session', true) is distinct from $4::text then 0
            when $2::int = 0 and $3::int = 0 then pg_advisory_unlock($1::bigint)::int
            when $2::int = 0 then pg_advisory_unlock_shared($1::bigint)::int
            when $3::int = 0 then pg_advisory_unlock(($1::bigint >> 32)::int,
                     (($1::bigint << 32) >> 32)::int)::int
            else pg_advisory_unlock_shared(($1::bigint >> 32)::int,
                     (($1::bigint << 32) >> 32)::int)::int end,
       case when current_setting('rowlock.session', true) = $4::text then pg_backend_pid()
            else 0 end

-- statement advisory_unlock_all
-- Releases every session-level advisory lock of this connection.
select pg_advisory_unlock_all()

-- statement advisory_wait
-- Waits for a lock for one time slice in the server's own queue. Reports no outcome: check with
-- advisory_held (session level) or try again (transaction level, which is re-entrant), since the lock may
-- also be granted just as the time ends. DO takes no parameters: the caller writes {slice}, {call}
-- and {refusal}: digits, a function call over digits and a condition. A block catches the time-out on the server: it
-- neither aborts the caller's transaction nor fills the server's log. The setting is local to the block's
-- transaction and restored at once; a time-out undoes it with the block. A session-level lock survives that
-- undoing, as it must: it ignores transactions. The wait is sliced, because it holds a snapshot for which
-- CREATE INDEX CONCURRENTLY waits. A slice is shorter than the statement timeout in force, which would fail
-- the statement. It is also shorter than deadlock_timeout: two transactions that wait for each other both
-- regain control.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- {slice} in ms  {call} such as pg_advisory_lock(42)  {refusal} a condition under which nothing is to be locked
do '
declare
    timeout constant int default (select cast(setting as int) from pg_catalog.pg_settings
                              where name operator(pg_catalog.=) ''statement_timeout'');
    patience constant int default (select cast(setting as int) from pg_catalog.pg_settings
                                   where name operator(pg_catalog.=) ''deadlock_timeout'');
    before constant pg_catalog.text default pg_catalog.current_setting(''lock_timeout'');
begin
    if {refusal} or pg_catalog.pg_is_in_recovery() then
        return;
    end if;
    perform pg_catalog.set_config(''lock_timeout'',
        cast(greatest(1, least({slice}, case when timeout operator(pg_catalog.>) 0
                                        then timeout operator(pg_catalog./) 2 else {slice} end,
                               patience operator(pg_catalog./) 2)) as pg_catalog.text),
        true);
    perform {call};
    perform pg_catalog.set_config(''lock_timeout'', before, true);
exception when lock_not_available then
    null;
end'
