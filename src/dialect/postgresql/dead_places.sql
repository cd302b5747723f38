-- How many places there are in all queues, and how many of them belong to sessions that are dead: they
-- are in nobody's way, and the reaper removes them. For people; reads only.
select count(*),
       count(*) - (select count(*) from rowlock_waiter w join rowlock_session m on m.id = w.session
                    where {live})
  from rowlock_waiter
