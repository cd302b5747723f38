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
