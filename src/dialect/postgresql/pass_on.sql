-- Gives a lease that is this very grant to a waiter whom its holder has seen before (settle.sql), and
-- promises the token after that to the next: all or nothing. hand_over.sql is what to send when this
-- changes nothing: the waiter has gone, or the lease is not this grant any more.
--
-- The lease's row first, then the ticket, as everywhere. A ticket that was cancelled behind this snapshot
-- is not there to be deleted: then the statement fails, and nothing of it happened.
-- What was seen may be old: a waiter whose session is over, or was opened on another server, gets nothing.
-- That is judged in this snapshot, as in grant_next.sql; a session that ends behind it leaves a lease that
-- names an ended session, which is free.
--
-- Asynchronous ($10) if the row's promise names this waiter and its holder has made that durable. What a
-- crash may lose then is that the lease was given on, not to whom it goes: the row comes back with its
-- old holder, whose client releases it again (release.sql); as long as the waiter's session lives nobody
-- else gets the lease, and never anybody else this token, as every other grant leaves it out. Two things
-- follow: the waiter, told before the crash, can hold no token that another was given; and its own
-- transactions are behind this one in the log, so none of them survives without it.
-- Whoever comes after ($11) must be found by looks that begin where this leaves them (fragment in_line): a
-- promise to a place that nobody finds would stop the queue.
-- $1 name  $2 my session  $3 grant id  $4 ticket  $5 its session  $6 its grant id  $7 thread  $8 note
-- $9 own deadline in µs, or NULL  $10 1 = asynchronously  $11 grant id of whoever comes after, or NULL
-- $12 where looks into the queue began: a mark that was set back since then stays (rewind.sql)
-- $13 1 = notify the waiter's session, by $14 its wake-up address and $15 its secret; else whoever sends
-- this tells it, once this has committed
-- → token; or no row
with u as (
         update rowlock_lease as l
            set token = l.token + 1 + (coalesce(l.successor, $6::bigint) <> $6::bigint)::int,
                session = $5::bigint, grant_id = $6::bigint, thread = $7::text, note = $8::text,
                acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
                served = case when l.served < $12::bigint then l.served else $4::bigint end,
                deadline = clock_timestamp() + $9::bigint::float8 * interval '1 microsecond',
                successor = $11::bigint
          where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
            and exists (select from rowlock_waiter w
                         where w.name = $1::text and w.ticket = $4::bigint and w.grant_id = $6::bigint
                         offset 0)
            and exists (select from rowlock_session m where m.id = $5::bigint and {live} offset 0)
         returning l.token),
     d as (
         delete from rowlock_waiter w
          where w.name = $1::text and w.ticket = (select $4::bigint from u)
         returning w.ticket)
select u.token,
       case when $10::int = 1 then set_config('synchronous_commit', 'off', true) end,
       case when not exists (select from d) then ('rowlock: the waiter has gone, token ' || u.token::text)::int end,
       case when $13::int = 1
            then (select pg_notify('rowlock_' || $14::bigint::text, {said})::text
                    from (select $15::text as wake_secret,
                                 $6::bigint::text || ' ' || u.token::text || ' ' || $10::int::text as words) t) end
  from u
