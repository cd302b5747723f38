-- Frees a lease if it is still this very grant and this statement's snapshot shows nobody live who waits
-- for it: release.sql and one index entry more, where hand_over costs the server twice as much. No row
-- changed: not this grant, or somebody waits, which hand_over finds out. A ticket that commits behind
-- the snapshot is not seen: look for waiters afterwards.
-- $1 name  $2 my session  $3 grant id  $4 1 = may commit asynchronously, see release.sql
with c as materialized (
         select case when $4::int = 1 then set_config('synchronous_commit', 'off', true) end)
update rowlock_lease l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
  from c
 where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint and not {waited}
