-- statement candidates
-- The live waiters of one lease, in the order in which they are to lead: the greatest priority first, then the
-- lowest ticket. One snapshot; reads only. What it says may be old when a leader steps down in favour of one of
-- them: the hand-over (hand_over_to) finds out whether the entry is still there. An entry of a request for
-- several leases is not among them: it is not served alone.
-- $1 name
-- → ticket, session, grant id, thread, note, own deadline in µs, the session's wake-up address, secret and
--   mailbox, the token a grant would carry; priority, owner, host, program, pid, µs waited; the grant id of the
--   candidate that was chosen last, or NULL
select w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us, m.wake_address, m.wake_secret, m.mailbox,
       greatest(coalesce(l.token, 0), f.floor) + 1,
       w.priority, m.owner, m.host, m.program, m.pid,
       (extract(epoch from clock_timestamp() - w.enqueued_at) operator(pg_catalog.*) 1000000)::bigint,
       l.heir
  from rowlock_token_floor f
       cross join rowlock_waiter w
       join rowlock_session m on m.id = w.session
       left join rowlock_lease l on l.name = w.name
 where w.name = $1::text and w.members = 1 and {live}
 order by w.priority desc, w.ticket

-- statement proclaim
-- Changes the note of a lease that is still this very grant: the value of its leader. Repeatable. Waits for a
-- fenced transaction, which has locked the row.
-- $1 name  $2 my session  $3 grant id  $4 note
update rowlock_lease set note = $4::text
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement choose_heir
-- Says for whom this very grant is about to step down: that candidate leads although others of greater priority
-- wait. Its grant id is used once, so what is written here concerns no other grant, and need not be taken back
-- if the hand-over does not follow. Waits for a fenced transaction, which has locked the row.
-- $1 name  $2 my session  $3 grant id  $4 grant id of the candidate
update rowlock_lease set heir = $4::bigint where name = $1::text and session = $2::bigint and grant_id = $3::bigint
