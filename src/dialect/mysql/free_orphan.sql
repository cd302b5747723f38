-- Frees one of them, compare-and-set: a lease that was granted again meanwhile has another token.
-- acquired_at stays: by it the history tells this from a release (migrations/*/history/on.sql).
-- $1 name  $2 token  $3 session
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, deadline = null, changed_at = {now}
 where name = $1 and token = $2 and session = $3
