-- statement fence
-- Locks a lease's row in the caller's transaction if it is still this grant: one row with 1, or 0.
--
-- Take-over, forced release and reclaim write this row, so they wait for our commit; heartbeats
-- write the session's. `v` reads without a lock, in the transaction's own view: a view older than
-- the grant (REPEATABLE READ) does not show it, and what such a transaction reads would be stale;
-- and where the grant is over, nobody's row is locked. LIMIT keeps `v` from being merged into the
-- locking read, which then locks first and compares afterwards. STRAIGHT_JOIN reads `v` first; and no
-- condition on `l` names a parameter, which would make it a constant's row, read and locked early.
--
-- The locking read sees the latest row: one that changed since the view does not match, and then
-- stays locked till the rollback that the caller owes. The session is read without a lock: ended
-- after that, its lease's row is still ours, and whoever ended it waits for that.
--
-- SERIALIZABLE makes InnoDB lock what `v` reads too: heartbeats wait then.
-- $1 name  $2 session  $3 token
-- → 1 or 0, and the idle limit in force: somebody else may have set it since we did. (MariaDB has
-- idle_transaction_timeout there.)
select straight_join count(*), @@session.wait_timeout
  from (select l.name, l.session, l.token
          from rowlock_lease l straight_join rowlock_session s
         where {is_current}
         limit 1) v
       straight_join rowlock_lease l
       on l.name = v.name and l.session = v.session and l.token = v.token
  lock in share mode

-- statement release_on_commit
-- Frees a lease in the caller's transaction if it is still this grant: one row changed. The lock is
-- exclusive from here on: a taker sees the row free once we commit, and ours again if we roll back.
-- fence_view comes first, for what it tells of the session and of the transaction's view.
-- $1 name  $2 session  $3 token  $4 grant id
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = greatest({now_in_any_zone}, changed_at)
 where name = $1 and session = $2 and token = $3 and grant_id = $4

-- statement fence_view
-- Whether the transaction's own view shows a lease as this grant: 1 or 0. Locks nothing below
-- SERIALIZABLE. A view older than the grant does not show it; what is written afterwards by
-- fence_write or release_on_commit sees the latest row.
-- $1 name  $2 session  $3 token
-- → 1 or 0, and the idle limit in force, as fence.sql
select count(*), @@session.wait_timeout from rowlock_lease l straight_join rowlock_session s where {is_current}

-- statement fence_write
-- The fence in a cluster: a shared lock would hold on this server alone, and what it reads may be behind
-- the others; a write is certified against those of all at the commit. One row changed if it is still this
-- grant. By primary key, and always a change.
-- $1 name  $2 session  $3 token
update rowlock_lease
   set changed_at = greatest({now_in_any_zone}, changed_at + 1)
 where name = $1 and session = $2 and token = $3
