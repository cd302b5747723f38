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
