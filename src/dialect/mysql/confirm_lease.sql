-- Makes sure that what was read of a lease is durable, whoever wrote it: a commit of our own behind it. MySQL
-- counts changed rows, so the row must change. No row changed: it is not at that token any more.
-- $1 name  $2 the token that was read
update rowlock_lease set changed_at = greatest({now}, changed_at + 1)
 where name = $1 and token = $2
