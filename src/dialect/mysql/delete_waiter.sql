-- Removes a ticket, by primary key: by another key this deadlocks with enqueuers.
-- $1 ticket
delete from rowlock_waiter where ticket = $1
