-- Takes a place in a queue. One writer: tickets become visible in the order in which they are drawn.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
insert into rowlock_waiter (name, session, grant_id, thread, note, deadline_us, enqueued_at)
values ($1, $2, $3, $4, $5, $6, {now})
on conflict (grant_id) do nothing
