-- Deletes old records up to one, by primary key; writers insert at the other end. Of two reapers the second
-- finds nothing more.
-- $1 id
delete from rowlock_history where id <= $1
