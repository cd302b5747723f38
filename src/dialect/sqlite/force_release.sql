-- Takes a lease from its holder, compare-and-set; the token rises, so the holder's fences fail.
-- $1 name  $2 probed token  $3 probed session
update rowlock_lease
   set token = token + 1, session = null, grant_id = null, thread = null, note = null,
       acquired_at = null, deadline = null, changed_at = {now}
 where name = $1 and token = $2 and session = $3
