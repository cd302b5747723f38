-- Frees several leases of one session by one commit: those that are still these very grants and that nobody
-- waits for. hand_over.sql is what to send for the rest, one by one. Waits for nobody: a row that is locked,
-- perhaps by a fenced transaction of our own, is skipped. Else as release_unwaited.sql.
-- $1 my session  $2 names, each once  $3 their grant ids  $4 1 = may commit asynchronously, see release.sql
-- → grant id of each that was freed
with k as materialized (
         select r.grant_id, l.place
           from unnest($2::text[], $3::bigint[]) as r (name, grant_id) cross join lateral (
                select l.ctid as place from rowlock_lease l
                 where l.name = r.name and l.session = $1::bigint and l.grant_id = r.grant_id
                   and (select w.ticket from rowlock_waiter w
                         where w.name = r.name and w.ticket > coalesce(l.served, 0) - 256
                         order by w.ticket limit 1) is null
                   for no key update skip locked) l),
     c as materialized (
         select case when $4::int = 1 then set_config('synchronous_commit', 'off', true) end)
update rowlock_lease l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
  from k, c
 where l.ctid = k.place
returning k.grant_id
