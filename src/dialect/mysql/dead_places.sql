-- How many places there are in all queues, and how many of them belong to sessions that are dead: they
-- are in nobody's way, and the reaper removes them. For people; reads only. No count of this query itself:
-- over an empty table MariaDB 10.11 answers NULL for a subquery beside it that reads a variable.
select (select count(*) from rowlock_waiter),
       (select count(*) from rowlock_waiter)
       - (select count(*) from rowlock_waiter w join rowlock_session m on m.id = w.session
           where {live})
