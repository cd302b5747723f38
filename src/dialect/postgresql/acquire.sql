-- Grants a lease if it is free and our session lives: probe and compare-and-set in one statement.
-- The probe judges in this statement's snapshot. The write then takes the row's lock and compares the
-- token with the probed one. Every grant changes the token, and a row that is free at one token is
-- never held at it again, so a judgement that became stale during a wait for the lock (another
-- grant, a session younger than our snapshot) fails and never steals. A row that appeared meanwhile
-- meets a NULL probed token and is left alone. When held, nothing is written or locked.
-- The new token passes the floor also where the row was reaped. acquired_at and deadline are read
-- in DO UPDATE, after the row's lock was waited for.
-- Nobody passes a live waiter, who was there when this statement began: a ticket that commits later was
-- asked for at the same time as we. The uncontended path looks for one index entry more.
-- Nobody takes a promised token, and nobody at all passes the waiter it is promised to (waited = 2),
-- not even who barges: it may have been told already, before a crash (docs/adr/0023).
-- If the reply is lost: the grant id finds the row again.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 1 = also past waiters
-- → the granted token or NULL, whether my session lives, {look}
with p as materialized (
         select {look}, l.successor
           from (values (1)) as one
                left join rowlock_lease l on l.name = $1::text
                left join rowlock_session s on s.id = l.session),
     mine as materialized (
         select m.id from rowlock_session m where m.id = $2::bigint and {live}),
     t as (
         insert into rowlock_lease as r (name, token, session, grant_id, thread, note,
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
