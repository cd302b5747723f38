-- Locks the sessions of an owner that are not ended, but for our own: their heartbeats wait.
-- $1 owner  $2 my session
select id from rowlock_session
 where owner = $1::text and id <> $2::bigint and not ended order by id for update
