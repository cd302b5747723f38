-- statement take_permits
-- Raises `used`, if there is room, nobody holds all of the lock and no live session waits. The update locks the row and judges what it holds then. A sole holder that has ended is taken out before, by
-- clear_sole; nothing here judges a session. insert_permit follows in the same transaction, for
-- each hold. Waiters and our session are as of the beginning of the statement, or later, and read without locks: a
-- ticket that commits later was requested at the same time.
-- $1 name  $2 my session  $3 permits  $4 0: permits, 1: a mode  $5 how many holds have these permits
update rowlock_lock
   set used = used + $3, token = {greatest}(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + $5,
       changed_at = {now}
 where name = $1 and (capacity is null) = $4 and session is null and $3 <= {room(rowlock_lock)} and coalesce({waited}, 1) = 0
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement insert_permit
-- Writes a hold, in the transaction that has raised the counter and its token. Inserts nothing for a session that
-- does not live here.
-- $1 name  $2 session  $3 grant id  $4 permits  $5 thread  $6 note  $7 own deadline in µs, or NULL
-- $8 how many holds follow in this transaction, which have the tokens above it
insert into rowlock_hold (name, session, grant_id, weight, thread, note, deadline, token, acquired_at)
select $1, $2, $3, $4, $5, $6, {now} + $7, p.token - $8, {now}
  from rowlock_lock p
 where p.name = $1 and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement use_permits
-- Raises `used` for a waiter, if there is room and nobody holds all of the lock. In the same transaction its ticket is deleted, then
-- insert_permit follows: all or nothing. Counter first, ticket second: who cancels a ticket waits for nothing more.
-- $1 name  $2 permits
update rowlock_lock
   set used = used + $2, token = {greatest}(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1,
       changed_at = {now}
 where name = $1 and session is null and $2 <= {room(rowlock_lock)}

-- statement return_permits
-- Lowers the counter, in the transaction that has deleted the hold, or has lowered its permits. An upgrade ends with its
-- hold, which is the only one.
-- $1 name  $2 permits
update rowlock_lock set used = used - $2, grant_id = null, changed_at = {now} where name = $1

-- statement shrink_permit
-- Lowers how many permits a hold has. It names the number before and the token, which is another if the number was ever
-- raised (end_upgrade), so a second one changes nothing. return_permits follows in the same transaction.
-- $1 name  $2 my session  $3 grant id  $4 permits before  $5 permits from now on  $6 token
update rowlock_hold set weight = $5 where name = $1 and grant_id = $3 and session = $2 and weight = $4 and token = $6

-- statement delete_permit
-- Ends one hold, by primary key: a second release changes nothing. It names the permits that were read: return_permits,
-- which follows in the same transaction, lowers the counter by them. Hold first, counter second: no grant waits for a
-- hold, so no circle closes.
-- $1 name  $2 grant id  $3 session  $4 permits
delete from rowlock_hold where name = $1 and grant_id = $2 and session = $3 and weight = $4

-- statement holds_over
-- Some holds of sessions that have ended or are gone, which stays true, and some past their own deadline, which an
-- extension may have moved that is not committed yet: lock_permit_now judges that again. Locks nothing.
-- $1 name
-- → grant id, session, permits, whether its session has ended
select s.grant_id, s.session, s.weight, m.id is null or m.ended = 1
  from rowlock_hold s left join rowlock_session m on m.id = s.session
 where s.name = $1 and {hold_over}
 order by s.grant_id limit 64

-- statement insert_lowered
-- Writes the hold that a sole grant becomes, with its id, its token and all that its row says of it, a request for its
-- release among it. The transaction has locked the row (confirm_grant); lower_lock follows. Nothing for a session that does
-- not live here, nor behind the grant's own deadline.
-- $1 name  $2 session  $3 grant id  $4 weight
insert into rowlock_hold (name, session, grant_id, weight, thread, note, deadline, token, acquired_at, requested, asked_by, reason)
select l.name, l.session, l.grant_id, $4, l.thread, l.note, l.deadline, l.token, l.acquired_at,
       coalesce(l.asked_for = l.grant_id, 0), case when l.asked_for = l.grant_id then l.asked_by end,
       case when l.asked_for = l.grant_id then l.reason end
  from rowlock_lock l
 where l.name = $1 and l.session = $2 and l.grant_id = $3 and not coalesce(l.deadline <= {now}, 0)
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement lower_lock
-- Counts the hold that insert_lowered has written, in the place of the sole holder. The token rises: whoever judged that
-- holder dead finds another one, and does not take the lock beside the hold.
-- $1 name  $2 session  $3 grant id  $4 weight
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null, deadline = null,
       used = $4, token = token + 1, changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3 and used = 0

-- statement end_upgrade
-- Ends an upgrade; its hold stays, with another weight if that is wanted. Nobody else has anything of the lock before the
-- commit, so there is room. The transaction has locked the hold (lock_upgraded), so a transaction of the caller's that is fenced with
-- the hold works under the upgrade. The token rises, as with every change of what is held but its end, and is the hold's
-- if its weight changes: a shrink that comes late names an older one. A repetition of this changes nothing, nor one that
-- comes late: every upgrade has another id, also one that was reclaimed. Then check the queue.
-- $1 name  $2 grant id of the upgrade  $3 how much more its hold has from now on (weigh_upgraded)
update rowlock_lock set used = used + $3, grant_id = null, token = token + 1, changed_at = {now}
 where name = $1 and grant_id = $2 and session is null

-- statement weigh_upgraded
-- Gives a hold whose upgrade ends another weight, with the token that end_upgrade sets next.
-- $1 name  $2 grant id of the hold  $3 weight
update rowlock_hold set weight = $3, token = (select l.token + 1 from rowlock_lock l where l.name = $1)
 where name = $1 and grant_id = $2

-- statement lock_permit_now
-- Locks a hold that has ended, by primary key, unless another transaction has it locked: a fence, or another end.
-- $1 name  $2 grant id  $3 session  $4 1 = its session has ended
select 1 from rowlock_hold
 where name = $1 and grant_id = $2 and session = $3 and ($4 = 1 or deadline <= {now}) {for_update_now}

-- statement lock_upgraded
-- Locks the hold that an upgrade is of, which is the only one.
-- $1 name  $2 grant id of the upgrade
-- → grant id, weight of the hold
select grant_id, weight from rowlock_hold
 where name = $1 and exists (select 1 from rowlock_lock l where l.name = $1 and l.grant_id = $2 and l.session is null)
 {for_update}
