-- statement acquire
-- Grants a lease if it is free and our session lives: probe and compare-and-set in one statement.
-- The probe judges in this statement's snapshot. The write then takes the row's lock and compares the token
-- with the probed one. Every grant changes the token, and a row that is free at one token is never held at it
-- again, so a judgement that became stale during a wait for the lock (another grant, a session younger than
-- our snapshot) fails and never steals. A row that appeared meanwhile meets a NULL probed token and is left
-- alone. If the lease is held, nothing is written or locked.
-- The new token exceeds the floor even if the row was reaped. acquired_at and deadline are evaluated in DO
-- UPDATE, after the wait for the row's lock.
-- No client overtakes a live waiter that was queued when this statement began; a ticket that commits later
-- was requested at the same time as this lease. The uncontended path reads one index entry more.
-- No client takes a promised token, and none, not even a barging one, overtakes the waiter it is promised to
-- (waited = 2): that waiter may have been notified already, before a crash (docs/adr/0023).
-- If the reply is lost, the grant id finds the row again.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 1 = also past waiters
-- → the granted token or NULL, whether my session lives, {probe}
with p as materialized (
         select {probe}, l.successor
           from (values (1)) as one
                left join rowlock_lock l on l.name = $1::text
                left join rowlock_session s on s.id = l.session),
     mine as materialized (
         select m.id from rowlock_session m where m.id = $2::bigint and {live}),
     t as (
         insert into rowlock_lock as r (name, token, session, grant_id, thread, note,
                                         acquired_at, changed_at, deadline)
         select $1::text, greatest(coalesce(p.token, 0), f.floor) + 1
                    + (p.successor is not null)::int, mine.id,
                $3::bigint, $4::text, $5::text, clock_timestamp(), clock_timestamp(),
                clock_timestamp() + $6::bigint::float8 * interval '1 microsecond'
           from p, mine, rowlock_token_floor f
          where p.free = 1 and (p.waited = 0 or (p.waited = 1 and $7::int = 1))
         on conflict (name) do update
            set token = excluded.token, session = excluded.session, grant_id = excluded.grant_id,
                thread = excluded.thread, note = excluded.note, acquired_at = clock_timestamp(),
                changed_at = clock_timestamp(), successor = null,
                deadline = clock_timestamp() + $6::bigint::float8 * interval '1 microsecond'
          where r.token = (select p.token from p)
         returning r.token)
select (select t.token from t), (select count(*) from mine), p.* from p

-- statement release
-- Frees a lease if it is still this very grant: a release repeated after a lost reply cannot free a newer
-- one. The commit is asynchronous: if the server crashes before it is on disk, the lease is merely held
-- again, and the client, whose connection broke, reconnects and releases every row that names its session and
-- is not held. Behind a pooler a crash breaks no client connection: there the commit stays synchronous.
-- $1 name  $2 my session  $3 grant id
with c as materialized (
         select set_config('synchronous_commit', 'off', true))
update rowlock_lock l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
  from c
 where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint

-- statement release_durably
-- `release` with a commit that waits for the disk, for connections behind a transaction pooler: a server
-- crash breaks no client connection there, so nothing would make the client compare its rows.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement probe
-- The light probe of waiters: reads only, locks nothing, writes nothing.
-- $1 name  $2 my session
-- → NULL, whether my session lives, {probe}
select null, (select count(*) from rowlock_session m where m.id = $2::bigint and {live}), {probe}
  from (values (1)) as one
       left join rowlock_lock l on l.name = $1::text
       left join rowlock_session s on s.id = l.session

-- statement find_grant
-- Finds the grant of an acquire whose reply was lost: its token, or no row.
-- $1 name  $2 my session  $3 grant id
select token from rowlock_lock
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement glance
-- Whether a lease is free, and whose it is: what a waiter asks whose ticket was just committed, without the costly rest of
-- `probe`. Reads only. No row: it has none, and is free.
-- $1 name
-- → {glance}
select {glance}
  from rowlock_lock l left join rowlock_session s on s.id = l.session
 where l.name = $1::text

-- statement confirm_grant
-- Makes a grant that was found again durable by a later commit of our own. Changes the row, so that there is
-- something to commit.
-- $1 name  $2 my session  $3 grant id
update rowlock_lock set changed_at = clock_timestamp()
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint

-- statement force_release
-- Takes a lease from its holder, compare-and-set; the token rises, so the holder's fences fail. The note of the free
-- row is who did it: a history records it.
-- $1 name  $2 probed token  $3 probed session  $4 by whom, or NULL
update rowlock_lock
   set token = token + 1, session = null, grant_id = null, thread = null, note = $4::text,
       acquired_at = null, deadline = null, changed_at = clock_timestamp()
 where name = $1::text and token = $2::bigint and session = $3::bigint

-- statement lock_lease
-- Locks a lease's row for the transaction, if it is still this grant. Lease first, then session
-- (docs/adr/0010).
-- $1 name  $2 token  $3 session
select 1 from rowlock_lock
 where name = $1::text and token = $2::bigint and session = $3::bigint
   for update

-- statement shorten_lease
-- Sets a lease's deadline to the time at which its session would expire without another heartbeat, or to so long from
-- now, whichever is later, unless the lease ends before that. Never later than it was: a lease that was judged free stays free.
-- The transaction has locked the lease's row, and then the session's by bump_revision. A heartbeat either came before
-- that, and its expires_at is read here, or is refused until its client knows the new revision, which the client adopts
-- only after it has read this deadline.
-- After a request without a time (asked_by null) a later one with a time changes nothing.
-- $1 name  $2 session  $3 how long from now, in µs  $4 who asks, or NULL: the holder gives it up at once  $5 why; of a request at once, who and why
update rowlock_lock l
   set deadline = least(l.deadline, greatest(m.expires_at, clock_timestamp() + $3::bigint::float8 * interval '1 microsecond')),
       asked_by = case when not coalesce(l.asked_for = l.grant_id and l.asked_by is null, false) then $4::text end,
       reason = case when $4::text is null or not coalesce(l.asked_for = l.grant_id and l.asked_by is null, false)
                     then $5::text else l.reason end,
       asked_for = l.grant_id
  from rowlock_session m
 where l.name = $1::text and m.id = $2::bigint

-- statement reclaim_lease
-- Moves a lease of a predecessor, ended in this transaction, to our session by compare-and-set on the row's
-- own columns; the grant id stays. A promised token is skipped. No client has been notified of a promise that
-- this breaks: a session that may be reclaimed hands its leases over durably (`hand_over_to`).
-- Our session must live here.
-- $1 name  $2 my session  $3 the predecessor's session  $4 its token
update rowlock_lock l
   set session = $2::bigint, thread = null, token = greatest(l.token, f.floor) + 1 + (l.successor is not null)::int,
       successor = null,
       acquired_at = clock_timestamp(), changed_at = clock_timestamp()
  from rowlock_token_floor f
 where l.name = $1::text and l.session = $3::bigint and l.token = $4::bigint
   and not coalesce(l.deadline <= clock_timestamp(), false)
   and exists (select from rowlock_session m where m.id = $2::bigint and {live})

-- statement adopt_lease
-- Moves a lease that its holder offers to our session, as another grant, by compare-and-set on the row's own columns. The
-- deadline, the note and the time of the acquisition stay, and a request for the release is one for the new grant; not a
-- lease that was asked for at once. The transaction has locked the row, and the session of the giver, which lives. Our
-- session must live here.
-- A promised token is skipped, as by reclaim_lease.
-- $1 name  $2 my session  $3 the giver's session  $4 its token  $5 its grant id  $6 my grant id
update rowlock_lock l
   set session = $2::bigint, grant_id = $6::bigint, thread = null,
       asked_for = case when l.asked_for = l.grant_id then $6::bigint end,
       token = greatest(l.token, f.floor) + 1 + (l.successor is not null)::int, successor = null,
       changed_at = clock_timestamp()
  from rowlock_token_floor f
 where l.name = $1::text and l.session = $3::bigint and l.token = $4::bigint and l.grant_id = $5::bigint
   and not coalesce(l.deadline <= clock_timestamp(), false)
   and not coalesce(l.asked_for = l.grant_id and l.asked_by is null, false)
   and exists (select from rowlock_session m where m.id = $2::bigint and {live})

-- statement renew_lease
-- Sets the deadline of a lease to so long from now, with a new token. A waiter that judged the lease over by its old
-- deadline takes it by compare-and-set on the old token: were the token the same, it would take a lease that lives. The
-- transaction has locked the row, and then its session, which is to live longer than this deadline.
-- A promised token is skipped, as by reclaim_lease.
-- $1 name  $2 session  $3 token  $4 how long from now, in µs
update rowlock_lock l
   set token = greatest(l.token, f.floor) + 1 + (l.successor is not null)::int, successor = null,
       deadline = clock_timestamp() + $4::bigint::float8 * interval '1 microsecond', changed_at = clock_timestamp()
  from rowlock_token_floor f
 where l.name = $1::text and l.session = $2::bigint and l.token = $3::bigint and l.deadline > clock_timestamp()

-- statement extend_lease
-- Sets a lease's own deadline to so long from now, unless that has passed; never earlier than it was, and always a change,
-- by which the history knows it. The row's token rises with it: a client that judged the lease over by its old deadline takes it by compare-and-set on the old token, and
-- would take a lease that lives. So every move of a deadline to a later time changes the row's token; a shortened one
-- (shorten_lease) leaves what was judged free as it is. The lease keeps its own token: the row's is one that is reserved for
-- this grant, as by `retain`, and the next grant goes beyond it.
-- The transaction has locked the row (lock_lease), and has then read that its session lives and that its client knows every
-- change of the session's rows. Not a lease that another client has asked for (asked_for).
-- The next token is passed over, which the row may promise to a waiter; the promise is then one of the token after this.
-- $1 name  $2 my session  $3 the row's token  $4 its new one: $3 + 2  $5 how long from now, in µs
update rowlock_lock
   set token = $4::bigint,
       deadline = greatest(deadline + interval '1 microsecond',
                           clock_timestamp() + $5::bigint::float8 * interval '1 microsecond'),
       changed_at = clock_timestamp()
 where name = $1::text and session = $2::bigint and token = $3::bigint and deadline > clock_timestamp()
   and not coalesce(asked_for = grant_id, false)

-- statement inspect
-- Shows one name to an operator. No row for a semaphore, for a lock that has counted holds, or for a name without a row;
-- of the last, one if a live client waits for all of it (a waiter for a lock that was reaped recreates the row).
-- $1 name
select {info}
  from (select $1::text as name) n
       left join rowlock_lock l on l.name = n.name
       left join rowlock_session s on s.id = l.session
       cross join {queue}
 where coalesce(l.capacity is null and l.used = 0, q.waiting > 0)

-- statement list
-- Shows a page of names to an operator, by name: as inspect. Each half reads no further than the page.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
with n as materialized (
    (select l.name from rowlock_lock l
      where l.name >= $1::text and l.name < $2::text and l.name > $3::text and l.capacity is null and l.used = 0
      order by l.name limit $4::bigint)
    union
    (select distinct w.name from rowlock_ticket w join rowlock_session m on m.id = w.session
      where w.name >= $1::text and w.name < $2::text and w.name > $3::text and w.weight is null and {live}
        and not exists (select from rowlock_lock l where l.name = w.name and (l.capacity is not null or l.used <> 0))
      order by w.name limit $4::bigint)
    order by name limit $4::bigint)
select {info}
  from n left join rowlock_lock l on l.name = n.name
         left join rowlock_session s on s.id = l.session
         cross join {queue}
 order by n.name

-- statement held_leases
-- Returns which of these names' rows are grants of a session, for a holder that compares its state with the
-- table. By primary key: no index leads from a session to its leases. Reads only. Runs with enable_seqscan off:
-- a plan made for a small table would scan it, and goes on to compare each row with each of the names when
-- both are many, until the table is analyzed. A join instead is planned as two loops.
-- $1 session  $2 names, as an array's text
-- → grant id, token
select l.grant_id, l.token
  from rowlock_lock l
 where l.name = any ($2::text::text[]) and l.session = $1::bigint

-- statement restore_lease
-- Recreates the row of a lease that has waiters, as free, if the reaper has deleted it: grant_next needs it.
-- Its token is the floor, which no grant goes below.
-- $1 name
insert into rowlock_lock (name, token, changed_at)
select $1::text, o.floor, clock_timestamp() from rowlock_token_floor o
on conflict (name) do nothing

-- statement lease_deadline
-- What is left of a lease's own deadline in µs. The transaction has locked its row.
-- $1 name  $2 session
select {until(deadline)} from rowlock_lock where name = $1::text and session = $2::bigint

-- statement adopted_lease
-- A lease that our session has adopted: its token, what is left of its own deadline, how long it was to last from its
-- acquisition on (NULL: it has none), the client that asks for it, and its reason.
-- $1 name  $2 my session  $3 my grant id
select token, {until(deadline)},
       ({micros(deadline)} - {micros(acquired_at)}),
       case when asked_for = grant_id then asked_by end, reason
  from rowlock_lock where name = $1::text and session = $2::bigint and grant_id = $3::bigint

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
-- The queue is read as in `reacquire`. A promise names a waiter: then it is not kept.
update rowlock_lock l
   set token = $5::bigint, retained = l.grant_id, thread = null, note = null,
       acquired_at = clock_timestamp(), changed_at = clock_timestamp()
 where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint and l.token = $4::bigint
   and l.deadline is null and l.successor is null
   and coalesce(l.retained <> - l.grant_id, true)
   and (select f.floor from rowlock_token_floor f) <= $4::bigint
   and exists (select from rowlock_session m where m.id = $2::bigint and {live})
   and (select w.ticket from rowlock_ticket w where w.name = $1::text
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null

-- statement end_retention
-- Records which thread holds a lease, and since when; its client no longer keeps the lease after the release. The client
-- sends this after a recall. It also sends this, with a greater token, before the first fence of a local grant: a local
-- grant changes no row, so an older snapshot would show it as current.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 for how long it has been held, in µs
-- $7 the row's token  $8 the new one, or the same
update rowlock_lock
   set token = $8::bigint, retained = null, thread = $4::text, note = $5::text,
       acquired_at = clock_timestamp() - $6::bigint::float8 * interval '1 microsecond'
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint and token = $7::bigint

-- statement withdraw_retention
-- Asks through the row, where no message arrives: this grant is to be retained no further. Its client learns of it from
-- the next `retain`, which changes no row then. Others still find the lease retained, and recall it. A column that names
-- a grant needs no clearing. The client grants the lease to its threads until then, or until its time is up: the token
-- and the holder are as before.
-- $1 name  $2 session  $3 grant id
update rowlock_lock
   set retained = - grant_id
 where name = $1::text and session = $2::bigint and grant_id = $3::bigint and retained = grant_id
