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

-- statement retain
-- Keeps a grant for its client beyond the release of its thread, in the place of `release` (docs/adr/0055):
-- compare-and-set on the row's own columns. No row changed: the lease is not this grant any more, another client asks
-- for its release (it has a deadline), or waits for it; the caller then releases it.
-- All tokens up to the row's are this grant's from then on, by this commit, which is as durable as a grant's: the next
-- grant goes beyond them, and a prober that judged the row at the old token loses its compare-and-set.
-- A ticket that is committed after this snapshot is not seen. Its client sees `retained` and recalls the lease, or waits
-- until the client gives it back.
-- thread: a search for deadlocks leaves it out, as any of the client's threads may hold the lease, or none.
-- A repetition after a lost reply changes no row: the token has risen.
-- Not after withdraw_retention: the client was asked through the row.
-- $1 name  $2 my session  $3 grant id  $4 the row's token  $5 the last token of the new block
-- acquired_at changes in any case, although this clock has milliseconds: by that the history knows a retained lease from a row
-- that was changed by hand.
update rowlock_lock
   set token = $5, retained = grant_id, thread = null, note = null, acquired_at = max({now}, acquired_at + 1),
       changed_at = {now}
 where name = $1 and session = $2 and grant_id = $3 and token = $4 and deadline is null
   and coalesce(retained <> - grant_id, 1)
   and exists (select 1 from rowlock_token_floor f where f.id = 1 and f.floor <= $4)
   and exists (select 1 from rowlock_session m where m.id = $2 and {live})
   and not exists (select 1 from rowlock_ticket w where w.name = $1)
