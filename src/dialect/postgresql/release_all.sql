-- Frees several leases of one session by one commit: those that are still these very grants and that nobody,
-- alive or dead, waits for. hand_over.sql is what to send for the rest, one by one. Waits for rows, but not
-- long: only grants that were never fenced are sent here, so no fenced transaction has their rows. Else as
-- release_unwaited.sql.
-- $1 my session  $2 names, each once  $3 their grant ids  $4 1 = may commit asynchronously, see release.sql
-- → grant id of each that was freed
update rowlock_lease l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
  from unnest($2::text[], $3::bigint[]) as r (name, grant_id)
 where l.name = r.name and l.session = $1::bigint and l.grant_id = r.grant_id
   and (select w.ticket from rowlock_waiter w where w.name = r.name
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null
   and ($4::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
returning r.grant_id
