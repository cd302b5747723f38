-- Frees a lease if it is still this very grant and nobody, alive or dead, waits for it: release.sql and one
-- index entry more, where hand_over costs the server thrice as much. No row changed: not this grant, or
-- there is a ticket, which hand_over finds out. A ticket that commits behind this statement's snapshot is
-- not seen: look for waiters afterwards.
-- How it looks: retake.sql.
-- $1 name  $2 my session  $3 grant id  $4 1 = may commit asynchronously, see release.sql
update rowlock_lease l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
 where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
   and (select w.ticket from rowlock_waiter w where w.name = $1::text
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null
   and ($4::int = 0 or set_config('synchronous_commit', 'off', true) = 'off')
