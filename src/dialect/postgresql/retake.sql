-- Takes a lease back that this client freed with the token $7, if nothing has happened to it since: acquire.sql
-- without the probe, for a quarter of its cost to the server. No row changed: somebody had it meanwhile, or
-- waits for it, or our session is over; acquire.sql finds out.
-- The write waits for the row's lock and compares the token then, again: a row that is free at one token is
-- never held at it again, and what was promised was promised while it was held. Our session and the queue
-- are of the snapshot, as in acquire.sql and with its proof; a ticket of the dead counts here as well.
-- The look into the queue begins where the queue does (fragment in_line), and ORDER BY has it read by its
-- key; with EXISTS the planner reads all queues until one row will do, and here none mostly does.
-- A token at or below the floor is left to acquire.sql, which goes past it.
-- If the reply is lost: the grant id finds the row again.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 the token it was freed with
update rowlock_lease l
   set token = $7::bigint + 1, session = $2::bigint, grant_id = $3::bigint, thread = $4::text,
       note = $5::text, acquired_at = clock_timestamp(), changed_at = clock_timestamp(),
       deadline = clock_timestamp() + $6::bigint::float8 * interval '1 microsecond'
 where l.name = $1::text and l.token = $7::bigint and l.session is null and l.successor is null
   and (select f.floor from rowlock_token_floor f) <= $7::bigint
   and exists (select from rowlock_session m where m.id = $2::bigint and {live})
   and (select w.ticket from rowlock_waiter w where w.name = $1::text
           and w.ticket > coalesce(l.served, 0) - 256 order by w.ticket limit 1) is null
