-- Makes sure that a grant which was found again is durable: a commit of our own behind it. Changes
-- the row, so that there is something to commit.
-- $1 name  $2 my session  $3 grant id
update rowlock_lease set changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3
