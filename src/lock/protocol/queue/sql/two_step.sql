-- statement delete_served_ticket
-- Removes a ticket that is being served, by primary key. No row changed: it was cancelled, or the limit of its caller
-- has passed since it was read; then nothing is granted.
-- $1 ticket
delete from rowlock_ticket where ticket = $1 and coalesce(waits_until > {now}, 1) = 1

-- statement enqueue
-- Adds a queue entry. The table of tickets alone is touched: the holder's fenced transaction may lock the lease's
-- row for long. The ticket is drawn before it commits, so overlapping enqueues may become visible in either
-- order; one that was answered before another was sent has the lower ticket (except on Galera, where each
-- node draws from numbers of its own).
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 labels of what else it blocks, or NULL  $8 priority of a candidate  $9 its caller's time limit in µs, or NULL
-- $10 weight; NULL: it waits for all of the lock
insert into rowlock_ticket (name, session, grant_id, thread, note, deadline_us, enqueued_at, blocks, priority,
                            waits_until, weight)
values ($1, $2, $3, $4, $5, $6, {now}, $7, $8, {now} + $9, $10)

-- statement enqueue_upgrade
-- Adds the queue entry of an upgrade, before all others: its ticket is one of those below the first that
-- AUTO_INCREMENT gives. There is one upgradeable
-- holder at most, and no other client upgrades, so no two of them are live.
-- $1 … $10 as enqueue  $11 grant id of the hold  $12 ticket
insert into rowlock_ticket (name, session, grant_id, thread, note, deadline_us, enqueued_at, blocks, priority,
                            waits_until, weight, base, ticket)
values ($1, $2, $3, $4, $5, $6, {now}, $7, $8, {now} + $9, $10, $11, $12)

-- statement next_waiter
-- Reads a lock and the first ticket of its queue that can be served, in one snapshot; locks nothing. One that wants all of
-- the lock is granted it by compare-and-set on the token read here (take); a counted one by use_permits, which judges the
-- room again. Both find out by the deletion of the ticket whether it is still there. A waiter behind it is not looked at
-- before it has been served or has gone.
-- $1 name
-- → the token a grant would carry (NULL without a floor); whether the lock has a row, its token, whether it is free, its
--   session, its grant id; the ticket, its session, grant id, thread, note, deadline in µs, its
--   session's wake-up address, secret and mailbox, and in how many queues its request stands, or NULLs; whether the
--   lock has no sole holder that lives, its room, whether its counted holds are modes; the ticket's weight, or NULL, and
--   of an upgrade the grant id of its hold
select {greatest}(coalesce(l.token, 0), f.floor) + 1,
       l.name is not null, l.token, {free}, l.session, l.grant_id,
       w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
       w.wake_address, w.wake_secret, w.mailbox, w.members,
       {holder_gone}, {room(l)}, l.capacity is null, w.weight, w.base
  from (select 1 as one) as one
       left join rowlock_token_floor f on f.id = 1
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session
       left join (select w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
                         m.wake_address, m.wake_secret, m.mailbox, w.members, w.weight, w.base
                    {first_waiter}) w on 1 = 1
