-- statement acquire
-- Grants a lease if it is free and our session lives; returns a row if and only if it was granted.
-- A writing statement has the file to itself, so its subqueries see the current state. If the lease is
-- held, no page changes. If the reply is lost, the grant id finds the row again.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 1 = also past live waiters
insert into rowlock_lock as l (name, token, session, grant_id, thread, note,
                                acquired_at, changed_at, deadline)
select $1, f.floor + 1, m.id, $3, $4, $5, {now}, {now}, {now} + $6
  from rowlock_session m, rowlock_token_floor f
 where m.id = $2 and {live} and ($7 = 1 or not {waited})
on conflict (name) do update
   set token = max(l.token, excluded.token - 1) + 1, session = excluded.session,
       grant_id = excluded.grant_id, thread = excluded.thread, note = excluded.note,
       acquired_at = excluded.acquired_at, changed_at = excluded.changed_at,
       deadline = excluded.deadline
 where l.used = 0 and l.capacity is null
   and (l.session is null
        or not exists (select 1 from rowlock_session s where s.id = l.session and s.ended = 0)
        or coalesce(l.deadline <= {now}, 0))
returning token
