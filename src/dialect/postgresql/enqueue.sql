-- Takes a place in a queue. The waiter table alone is touched: the lease's row may be locked for long
-- by its holder's fenced transaction. The commit is asynchronous: a grant that rests on this ticket is
-- durable and makes the ticket so, and if a crash loses it before, its owner finds it gone and takes
-- another. The ticket is drawn before it commits, so overlapping enqueues may become visible in either
-- order; one that was answered before another was sent has the lower ticket.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
with c as materialized (
         select set_config('synchronous_commit', 'off', true))
insert into rowlock_waiter (name, session, grant_id, thread, note, deadline_us, enqueued_at)
select $1::text, $2::bigint, $3::bigint, $4::text, $5::text, $6::bigint, clock_timestamp() from c
on conflict (grant_id) do nothing
