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

-- statement tickets
-- The tickets of queue entries, to be deleted by primary key: by grant id that deadlocks with enqueuers.
-- $1 … $16 grant ids; may repeat
-- → grant id, ticket
select w.grant_id, w.ticket from rowlock_ticket w
 where w.grant_id in ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
 order by w.ticket

-- statement dead_tickets
-- Some tickets of a session that has ended or is gone, to be deleted by primary key. Locks nothing. A dead session
-- stays dead, so the judgement cannot become stale. They are sorted afterwards: a sorted limit may be read along
-- the primary key, through the tickets of all sessions.
-- $1 session
-- → grant id, ticket
select d.grant_id, d.ticket
  from (select w.grant_id, w.ticket from rowlock_ticket w
         where w.session = $1
           and not exists (select 1 from rowlock_session m where m.id = $1 and m.ended = 0)
         limit 16) d
 order by d.ticket

-- statement delete_ticket
-- Removes a ticket, by primary key: by another key this deadlocks with enqueuers.
-- $1 ticket
delete from rowlock_ticket where ticket = $1

-- statement delete_served_ticket
-- Removes a ticket that is being served, by primary key. No row changed: it was cancelled, or the limit of its caller
-- has passed since it was read; then nothing is granted.
-- $1 ticket
delete from rowlock_ticket where ticket = $1 and coalesce(waits_until > {now}, 1) = 1

-- statement served_of
-- Which leases of these names are grants of a session. By primary key, reads only.
-- $1 my session  $2 … $17 names; may repeat
-- → grant id, token, what is left of its own deadline in µs, or NULL
select l.grant_id, l.token, {until(l.deadline)}
  from rowlock_lock l
 where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.session = $1

-- statement woken_for
-- Which leases of these names are grants of a session: what it was woken for. By primary key, reads only;
-- other clients' commits are seen before they are on disk. A client that has committed a grant holds a
-- user-level lock, rowlock_told_…, from the return of its COMMIT on (lock/wakeup/mysql_wait.hpp): a
-- grant whose lock is held is durable. Any user of the server can take a user-level lock, so its name contains a
-- proof made with my session's secret (mysql_wait::mark_durable). A session without a secret has no such lock.
-- $1 my session  $2 … $17 names; may repeat
-- → grant id, token, what is left of its own deadline in µs, or NULL; whether it is known to be durable
select l.grant_id, l.token, {until(l.deadline)},
       case when octet_length(m.wake_secret) = 32
            then is_used_lock(concat('rowlock_told_', left(sha2(concat(m.wake_secret, 'durable ', l.grant_id), 256), 16)))
                 is not null else 0 end
  from rowlock_session m straight_join rowlock_lock l
 where m.id = $1 and l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
   and l.session = $1

-- statement next_waiter
-- Reads a lock and the first ticket of its queue that can be served, in one snapshot; locks nothing. One that wants all of
-- the lock is granted it by compare-and-set on the token read here (take); a counted one by use_permits, which judges the
-- room again. Both find out by the deletion of the ticket whether it is still there. A waiter behind it is not looked at
-- before it has been served or has gone.
-- $1 name
-- → the token a grant would carry; whether the lock has a row, its token, whether it is free, its
--   session, its grant id; the ticket, its session, grant id, thread, note, deadline in µs, its
--   session's wake-up address, secret and mailbox, and in how many queues its request stands, or NULLs; whether the
--   lock has no sole holder that lives, its room, whether its counted holds are modes; the ticket's weight, or NULL, and
--   of an upgrade the grant id of its hold
select greatest(coalesce(l.token, 0), f.floor) + 1,
       l.name is not null, l.token, {free}, l.session, l.grant_id,
       w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
       w.wake_address, w.wake_secret, w.mailbox, w.members,
       {holder_gone}, {room(l)}, l.capacity is null, w.weight, w.base
  from rowlock_token_floor f
       left join rowlock_lock l on l.name = $1
       left join rowlock_session s on s.id = l.session
       left join (select w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
                         m.wake_address, m.wake_secret, m.mailbox, w.members, w.weight, w.base
                    {first_waiter}) w on 1 = 1
 where f.id = 1

-- statement choose_next
-- The first step of a hand-over in one text, with the next three (sql::connection::transact): notes the lease's token, if it
-- is this grant, or still at a token that was read when it was free; and the first ticket of the queue that can be served,
-- NULL if there is none, it is a counted one, or one of a request for several locks, not served alone. NULL as a token: nothing is given.
-- A read, which locks nothing; SET would lock what it reads, also at READ COMMITTED. With no client between this and the
-- deletion of the ticket the choice is hardly ever old. That matters for callers with short limits: the first of a queue is
-- most often the next whose limit passes.
-- $1 name  $2 its session  $3 its grant id, or both NULL  $4 token, or NULL
select (select l.token from rowlock_lock l where l.name = $1 and (l.session = $2 and l.grant_id = $3 or l.token = $4)),
       (select if(w.members > 1 or w.weight is not null, null, w.ticket) {first_waiter})
  into @chosen_token, @chosen_ticket

-- statement give_to_chosen
-- Grants the lease to the chosen ticket, or frees it if there is none. Compare-and-set on the chosen token: as take
-- explains, the lease is still that grant, or has been freed and not granted since. It locks the lease's row, before the
-- ticket's, and waits for it: the choice may have become old. So delete_chosen judges the ticket again, and if another
-- client has deleted that, all is rolled back. The session that gets the lease lives when this begins (fragment live). At
-- READ COMMITTED the subqueries lock nothing. A ticket's columns never change. Assignments are evaluated from left to right.
-- $1 name
update rowlock_lock
   set token = if(@chosen_ticket is null, token,
                  greatest(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1),
       session = (select w.session from rowlock_ticket w where w.ticket = @chosen_ticket),
       grant_id = (select w.grant_id from rowlock_ticket w where w.ticket = @chosen_ticket),
       thread = (select w.thread from rowlock_ticket w where w.ticket = @chosen_ticket),
       note = (select w.note from rowlock_ticket w where w.ticket = @chosen_ticket),
       deadline = {now} + (select w.deadline_us from rowlock_ticket w where w.ticket = @chosen_ticket),
       acquired_at = if(@chosen_ticket is null, null, {now}), changed_at = {now}
 where name = $1 and token = @chosen_token
   and (@chosen_ticket is null
        or (select 1 from rowlock_ticket w straight_join rowlock_session m
             where w.ticket = @chosen_ticket and m.id = w.session and {live}) = 1)

-- statement see_chosen
-- Whom the lease was handed to, before the ticket is deleted. No row if it was freed.
-- $1 name
-- → the token; session, grant id, its wake-up address, secret and mailbox
select l.token, w.session, w.grant_id, m.wake_address, m.wake_secret, m.mailbox
  from rowlock_ticket w straight_join rowlock_session m straight_join rowlock_lock l
 where w.ticket = @chosen_ticket and m.id = w.session and l.name = $1

-- statement delete_chosen
-- Removes the chosen ticket, as delete_served_ticket: one row, or none if none was chosen.
delete from rowlock_ticket where ticket = @chosen_ticket and coalesce(waits_until > {now}, 1) = 1
