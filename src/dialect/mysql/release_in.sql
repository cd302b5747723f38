-- Frees a lease in the caller's transaction if it is still this grant: one row changed. The lock is
-- exclusive from here on: a taker sees the row free once we commit, and ours again if we roll back.
-- fence_view comes first, for what it tells of the session and of the transaction's view.
-- $1 name  $2 session  $3 token  $4 grant id
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = greatest({now_in_any_zone}, changed_at)
 where name = $1 and session = $2 and token = $3 and grant_id = $4
