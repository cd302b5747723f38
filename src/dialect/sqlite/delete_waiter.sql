-- Removes a ticket that was served.
-- $1 ticket
delete from rowlock_waiter where ticket = $1
