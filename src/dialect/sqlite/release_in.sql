-- Frees a lease in the caller's transaction if it is still this grant: one row changed. There is one
-- writer: nobody takes it before our commit, and a rollback leaves it ours.
-- $1 name  $2 session  $3 token  $4 grant id
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1 and session = $2 and token = $3 and grant_id = $4
   and coalesce(deadline > {now}, 1)
   and exists (select 1 from rowlock_session s
                where s.id = $2 and s.ended = 0 and s.expires_at > {now})
