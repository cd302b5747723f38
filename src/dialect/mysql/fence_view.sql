-- Whether the transaction's own view shows a lease as this grant: 1 or 0. Locks nothing below
-- SERIALIZABLE. A view older than the grant does not show it; what is written afterwards by
-- fence_write or release_in sees the latest row.
-- $1 name  $2 session  $3 token
-- → 1 or 0, and the idle limit in force, as fence.sql
select count(*), @@session.wait_timeout from rowlock_lease l straight_join rowlock_session s where {is_current}
