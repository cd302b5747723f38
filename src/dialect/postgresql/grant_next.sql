-- Gives a free lease to the lowest live ticket, deletes the ticket and notifies its session: all three
-- or none, in one durable commit. Anybody may run it at any time.
--
-- p and h judge in this statement's snapshot: the lease is free, somebody waits. If not, nothing is
-- locked. f then locks the lease's row if it still has the probed token: every grant changes the
-- token, and a row that is free at one token is never held at it again, so a judgement that became
-- stale during the wait for the lock fails. It waits, and does not skip: a holder that has released
-- while we were skipping would leave its waiters to nobody. c locks the first live ticket; one that was
-- cancelled meanwhile is stepped over. Only with both locks are both rows written: neither a ticket is
-- lost without a grant, nor a grant made to a ticket whose cancellation was confirmed. Lease first,
-- then one ticket: whoever holds a ticket waits for nothing more, so no circle can close.
--
-- EXISTS is asked once, first: without the lease no ticket is read, and none is judged before the wait.
-- c sees the tickets of the snapshot: one whose enqueue was answered before another was sent is in it
-- whenever the other is. The row's lock was waited for before acquired_at and the deadline are read.
--
-- A promise of the row's next token is kept: hand_over.sql. It changes with the token only, so what the
-- snapshot says of it is true of the locked row. An heir whose session was opened on a server before this
-- one cannot be served and may believe that it was: nobody is, until that session is over.
--
-- Looks into the queue begin anew where this ticket stood, but if they were set back behind our snapshot,
-- for a place that it did not show (rewind.sql): such a mark stays.
--
-- If the waiter's session ends at this moment the lease names an ended session: free by definition.
-- Who ended it looks at its queues and leases afterwards. If this statement had not committed then, the
-- ender's grant_next waited for the row and looked again.
-- $1 name
-- → 1 if the lease was free and waited for, else 0; 1 if it has no row; the waiter's session, grant id,
--   token. The first without the last: somebody was faster, look again.
with p as materialized (
         select l.name, l.token, l.served, {heir} as heir
           from (values (1)) as one
                left join rowlock_lease l on l.name = $1::text
                left join rowlock_session s on s.id = l.session
          where {free}),
     h as materialized (
         select p.name, p.token, p.served, p.heir from p
          where exists (select from rowlock_waiter w join rowlock_session m on m.id = w.session
                         where {in_line} and {live}
                           and w.grant_id = coalesce(p.heir, w.grant_id))),
     f as materialized (
         select case when l.served < h.served then l.served end as rewound
           from h join rowlock_lease l on l.name = h.name and l.token = h.token
            for update of l),
     c as materialized (
         select w.name, w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
                m.wake_address, m.wake_secret,
                (select f.rewound from f) as rewound
           from rowlock_waiter w join rowlock_session m on m.id = w.session
          where exists (select from f) and {in_line} and {live}
            and w.grant_id = coalesce((select h.heir from h), w.grant_id)
          order by w.ticket limit 1 for update of w),
     d as (
         delete from rowlock_waiter w using c where w.name = c.name and w.ticket = c.ticket),
     u as (
         update rowlock_lease as l
            set token = greatest(l.token, (select o.floor from rowlock_token_floor o)) + 1
                        + (coalesce(l.successor, c.grant_id) <> c.grant_id)::int,
                successor = null,
                session = c.session, grant_id = c.grant_id, thread = c.thread, note = c.note,
                acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
                served = coalesce(c.rewound, c.ticket),
                deadline = clock_timestamp() + c.deadline_us::float8 * interval '1 microsecond'
           from c where l.name = $1::text
         returning l.session, l.grant_id, l.token),
     n as materialized (
         select pg_notify('rowlock_' || t.wake_address::text, {said})
           from (select c.wake_address, c.wake_secret,
                        u.grant_id::text || ' ' || u.token::text || ' 0' as words from u, c) t)
select (select count(*) from h), (select count(*) from h where h.name is null),
       u.session, u.grant_id, u.token, (select count(*) from n)
  from (values (1)) as one left join u on true
