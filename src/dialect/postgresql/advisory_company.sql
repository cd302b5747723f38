-- Whether this session still holds a lock, and how many others wait for it: a reader that joined us
-- past a waiting writer could keep that writer out for ever.
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
