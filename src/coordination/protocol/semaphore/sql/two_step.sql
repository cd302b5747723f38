-- statement take_permits
-- Raises `used`, if there is room, nobody holds all of the lock and no live session waits; an upgrade passes those that
-- wait. The update locks the row and judges what it holds then. A sole holder that has ended is taken out before, by
-- clear_sole; nothing here judges a session. insert_permit follows in the same transaction, for
-- each hold. Waiters and our session are as of the beginning of the statement, or later, and read without locks: a
-- ticket that commits later was requested at the same time.
-- $1 name  $2 my session  $3 permits  $4 0: permits, 1: a mode
-- $5 of an upgrade, the grant id of its hold, which must be alive; NULL  $6 how many holds have these permits
update rowlock_lock
   set used = used + $3, token = {greatest}(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + $6,
       changed_at = {now}
 where name = $1 and (capacity is null) = $4 and session is null and $3 <= coalesce(capacity, 1999999999) - used
   and case when $5 is null then coalesce({waited}, 1) = 0
            else (select 1 from rowlock_hold b
                   where b.name = $1 and b.grant_id = $5 and b.session = $2
                     and not coalesce(b.deadline <= {now}, 0)) = 1 end
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement insert_permit
-- Writes a hold, in the transaction that has raised the counter and its token. Inserts nothing for a session that
-- does not live here.
-- $1 name  $2 session  $3 grant id  $4 permits  $5 thread  $6 note  $7 own deadline in µs, or NULL
-- $8 of an upgrade, the grant id of its hold, or NULL  $9 how many holds follow in this
-- transaction, which have the tokens above it
insert into rowlock_hold (name, session, grant_id, weight, thread, note, deadline, token, acquired_at, base)
select $1, $2, $3, $4, $5, $6, {now} + $7, p.token - $9, {now}, $8
  from rowlock_lock p
 where p.name = $1 and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1

-- statement use_permits
-- Raises `used` for a waiter, if there is room and nobody holds all of the lock. In the same transaction its ticket is deleted, then
-- insert_permit follows: all or nothing. Counter first, ticket second: who cancels a ticket waits for nothing more.
-- $1 name  $2 permits
update rowlock_lock
   set used = used + $2, token = {greatest}(token, (select f.floor from rowlock_token_floor f where f.id = 1)) + 1,
       changed_at = {now}
 where name = $1 and session is null and $2 <= coalesce(capacity, 1999999999) - used

-- statement return_permits
-- Lowers the counter, in the transaction that has deleted the hold, or has lowered its permits.
-- $1 name  $2 permits
update rowlock_lock set used = used - $2, changed_at = {now} where name = $1

-- statement shrink_permit
-- Lowers how many permits a hold has. It names the number before, so a second one changes nothing. return_permits
-- follows in the same transaction.
-- $1 name  $2 my session  $3 grant id  $4 permits before  $5 permits from now on
update rowlock_hold set weight = $5 where name = $1 and grant_id = $3 and session = $2 and weight = $4

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
