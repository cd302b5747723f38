-- Makes sure that a grant which was found again is durable: a commit of our own behind it. MySQL
-- counts changed rows, so the row must change: never to the time it has.
-- $1 name  $2 my session  $3 grant id
update rowlock_lease set changed_at = greatest({now}, changed_at + 1)
 where name = $1 and session = $2 and grant_id = $3
