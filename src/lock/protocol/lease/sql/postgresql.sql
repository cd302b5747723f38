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

-- statement release_asynchronously
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

-- statement probe
-- The light probe of waiters: reads only, locks nothing, writes nothing.
-- $1 name  $2 my session
-- → NULL, whether my session lives, {probe}
select null, (select count(*) from rowlock_session m where m.id = $2::bigint and {live}), {probe}
  from (values (1)) as one
       left join rowlock_lock l on l.name = $1::text
       left join rowlock_session s on s.id = l.session

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
