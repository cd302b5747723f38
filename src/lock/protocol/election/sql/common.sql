-- statement candidate
-- The live waiter of one lease that is to lead next: the greatest priority first, then the lowest ticket; or the
-- first of one session. One snapshot; reads only. What it says may be old when a leader steps down in favour of that
-- waiter: the hand-over (grant_to) finds out whether the entry is still there. An entry of a request for several
-- leases is no candidate: it is not served alone.
-- $1 name  $2 session, or NULL
-- → ticket, session, grant id, thread, note, own deadline in µs, the session's wake-up address, secret and
--   mailbox, the token a grant would carry; priority; the grant id of the candidate that was chosen last, or NULL
select w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us, m.wake_address, m.wake_secret, m.mailbox,
       {greatest}(coalesce(l.token, 0), f.floor) + 1, w.priority, l.heir
  from rowlock_ticket w {join} rowlock_session m {join} rowlock_token_floor f
       left join rowlock_lock l on l.name = $1::text
 where w.name = $1::text and w.session = coalesce($2::bigint, w.session) and m.id = w.session and f.id = 1
   and w.members = 1 and w.weight is null and {waits}
 order by w.priority desc, w.ticket limit 1

-- statement proclaim
-- Changes the note of a lease that is still this very grant: the value of its leader. Repeatable. Waits for a
-- fenced transaction, which has locked the row.
-- $1 name  $2 my session  $3 grant id  $4 note
update rowlock_lock set note = $4::text
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement choose_heir
-- Says for whom this very grant is about to step down: that candidate leads although others of greater priority
-- wait. It says so of that one queue entry, whose grant id is used once. If the hand-over does not follow, the entry
-- still leads whenever it is served. Waits for a fenced transaction, which has locked the row.
-- $1 name  $2 my session  $3 grant id  $4 grant id of the candidate
update rowlock_lock set heir = $4::bigint where name = $1::text and session = $2::bigint and grant_id = $3::bigint
