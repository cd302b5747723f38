-- statement fence
-- Locks a lease's row in the caller's transaction if it still has this grant: one row with 1, or 0.
--
-- Take-over, forced release and reclaim write this row, so they wait for our commit; heartbeats write the
-- session's row. `v` reads without a lock, in the transaction's own snapshot. A snapshot older than the
-- grant (REPEATABLE READ) does not show the grant, and what such a transaction reads would be stale. If the
-- grant is over, no row is locked. LIMIT keeps `v` from being merged into the locking read, which would
-- then lock first and compare afterwards. STRAIGHT_JOIN reads `v` first. No condition on `l` names a
-- parameter, which would make `l` a constant's row, read and locked early.
--
-- The locking read sees the latest row. A row that changed since the snapshot does not match, and then
-- stays locked until the rollback that the caller owes. The session is read without a lock: if it ends
-- after that read, its lease's row is still ours, and the client that ended it waits for that row.
--
-- At SERIALIZABLE InnoDB locks what `v` reads too, so heartbeats wait.
-- $1 name  $2 session  $3 token
-- → 1 or 0, and the idle limit in force, which other code may have set since we did. (On MariaDB:
-- idle_transaction_timeout.)
{bounded_select} straight_join count(*), @@session.{idle_limit}
  from (select l.name, l.session, l.token
          from rowlock_lock l straight_join rowlock_session s
         where {is_current}
         limit 1) v
       straight_join rowlock_lock l
       on l.name = v.name and l.session = v.session and l.token = v.token
  lock in share mode

-- statement release_on_commit
-- Frees a lease in the caller's transaction if it still has this grant: one row changed. The row lock is
-- exclusive from here on: a taker sees the row free once we commit, and ours again if we roll back.
-- fence_view runs first, to check the session and the transaction's snapshot.
-- $1 name  $2 session  $3 token  $4 grant id
{bounded_update} rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = greatest({now_in_any_zone}, changed_at)
 where name = $1 and session = $2 and token = $3 and grant_id = $4

-- statement fence_view
-- Whether the transaction's own snapshot shows a lease as this grant: 1 or 0. Locks nothing below
-- SERIALIZABLE. A snapshot older than the grant does not show it; what fence_write or release_on_commit
-- writes afterwards sees the latest row.
-- $1 name  $2 session  $3 token
-- → 1 or 0, and the idle limit in force, as in fence
{bounded_select} count(*), @@session.{idle_limit} from rowlock_lock l straight_join rowlock_session s where {is_current}

-- statement fence_write
-- The fence in a cluster: a shared lock would hold on this server alone, and this server's data may be
-- behind the others'; a write is certified against the writes of all at the commit. And the fence of a
-- transaction that will be prepared: XA PREPARE drops shared locks (MariaDB, below SERIALIZABLE), and all locks
-- of a transaction without a write (MySQL at once, MariaDB when its connection closes); a written row stays
-- locked until XA COMMIT or ROLLBACK. One row changed if it still has this grant. Finds the row by primary key,
-- and always changes it.
-- $1 name  $2 session  $3 token
{bounded_update} rowlock_lock
   set changed_at = greatest({now_in_any_zone}, changed_at + 1)
 where name = $1 and session = $2 and token = $3

-- statement fence_permits
-- The fence of a hold of permits: of a semaphore, or of a shared_mutex in one of its modes. It locks the hold's
-- row, and all that fence says holds: every end of a hold deletes that row before it lowers the counter, so what
-- the hold excludes stays excluded until our commit. A sweep passes over a locked row (lock_permit).
-- $1 name  $2 session  $3 grant id
-- → as fence
{bounded_select} straight_join count(*), @@session.{idle_limit}
  from (select l.name, l.grant_id, l.session
          from rowlock_hold l straight_join rowlock_session s
         where {is_current_hold}
         limit 1) v
       straight_join rowlock_hold l
       on l.name = v.name and l.grant_id = v.grant_id and l.session = v.session
  lock in share mode

-- statement fence_permits_view
-- As fence_view, of a hold of permits.
-- $1 name  $2 session  $3 grant id
-- → 1 or 0, and the idle limit in force, as in fence
{bounded_select} count(*), @@session.{idle_limit} from rowlock_hold l straight_join rowlock_session s where {is_current_hold}

-- statement fence_permits_write
-- As fence_write, of a hold of permits.
-- $1 name  $2 session  $3 grant id
{bounded_update} rowlock_hold set acquired_at = acquired_at + 1
 where name = $1 and grant_id = $3 and session = $2

-- statement fence_quorum_token
-- The guard of a transaction of the caller's beside fence(): no later token of the quorum is known here, nor will be
-- before the transaction ends: a claim, a write and a seal wait. No row: refused.
-- $1 name  $2 token
{bounded_select} 1 from rowlock_quorum where name = $1 and token <= $2 lock in share mode
