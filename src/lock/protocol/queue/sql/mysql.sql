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
