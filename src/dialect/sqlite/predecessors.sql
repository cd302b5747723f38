-- The sessions of an owner that are not ended, but for our own. In a write transaction.
-- $1 owner  $2 my session
select id from rowlock_session where owner = $1 and id <> $2 and ended = 0 order by id
