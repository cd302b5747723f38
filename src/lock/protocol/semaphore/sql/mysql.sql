-- statement confirm_permit
-- Makes a hold that was read durable by a later commit of our own. Changes the row, so that there is something
-- to commit.
-- $1 name  $2 my session  $3 grant id
update rowlock_hold set acquired_at = acquired_at + 1
 where name = $1 and grant_id = $3 and session = $2

-- statement confirm_upgrade
-- The same of an upgrade. Its hold may be in a fence of the caller's; no fence has this row.
-- $1 name  $2 grant id of the upgrade
update rowlock_lock set changed_at = changed_at + 1 where name = $1 and grant_id = $2 and session is null

-- statement mark_expired
-- Says to the history that a hold is swept, and not released: see migrations/mysql/history/on_permits.sql.
-- $1 name  $2 grant id  $3 session
update rowlock_hold set deadline = 1
 where name = $1 and grant_id = $2 and session = $3 and (deadline is null or deadline > 1)
