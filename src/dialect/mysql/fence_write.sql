-- The fence in a cluster: a shared lock would hold on this server alone, and what it reads may be behind
-- the others; a write is certified against those of all at the commit. One row changed if it is still this
-- grant. By primary key, and always a change.
-- $1 name  $2 session  $3 token
update rowlock_lease
   set changed_at = greatest({now_in_any_zone}, changed_at + 1)
 where name = $1 and session = $2 and token = $3
