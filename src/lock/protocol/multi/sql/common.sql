-- statement multi_enqueue
-- Adds an entry to each of several queues by one statement: the number of rows is known before the first is
-- inserted, so their tickets follow each other, with none of another client's in between. Of two requests the
-- same one is first in every queue that both are in, and no two wait for each other. (Except on a cluster
-- whose nodes draw from numbers of their own: there two requests of two nodes may wait for each other, and the
-- search for deadlocks finds them if they hold something else.) Touches the table of tickets alone.
-- $1 my session  $2 thread  $3 note  $4 own deadline in µs, or NULL  $5 labels of what else they block, or NULL
-- $6 how many names  $7 their caller's time limit in µs, or NULL;
-- then each name, its grant id, and its weight, or NULL: it waits for all of the lock
insert into rowlock_ticket (name, session, grant_id, thread, note, deadline_us, enqueued_at, blocks, members,
                            waits_until, weight)
values {entries}
