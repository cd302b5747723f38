-- Takes a place in a queue. The waiter table alone is touched: the lease's row may be locked for long
-- by its holder's fenced transaction. The ticket is drawn before it commits, so overlapping enqueues
-- may become visible in either order; one that was answered before another was sent has the lower
-- ticket (but for Galera, where each node draws from numbers of its own).
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
insert into rowlock_waiter (name, session, grant_id, thread, note, deadline_us, enqueued_at)
values ($1, $2, $3, $4, $5, $6, {now})
