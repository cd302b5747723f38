-- MariaDB only. Takes a lease again that this client has released, in one round trip where acquire has
-- a look and a write: one row changed if it was granted. The new token is the known one + 1.
--
-- Compare-and-set, like take, and what it compares is in the row that it locks: it is free because
-- its session is NULL, in the row's latest version and not in a snapshot. Every grant changes the
-- token; so a row that is free at the known token has not been anybody's since. What the subqueries see
-- is a snapshot not older than this statement, as a look before it would be: our session may end after
-- it (the row then names an ended session, and is free); a ticket that is committed after it overlaps
-- with us, and either order is right; a floor that is raised after it deletes nothing before it settles.
-- At READ COMMITTED the subqueries of a single-table UPDATE lock nothing: no heartbeat waits. (EXISTS
-- stands in COALESCE, or an optimizer may make a join of it, which locks what it reads.)
--
-- A ticket is enough to say no, also that of a dead waiter, whom acquire tells apart.
--
-- It must not wait for the row: somebody else's fenced transaction may have it for long, and a look
-- would have said at once that the lease is held. So the wait for locks is 0, in this statement alone;
-- 1205 says the same as no row changed. MySQL has neither: there acquire looks first.
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 the token it was released at
set statement innodb_lock_wait_timeout = 0 for
update rowlock_lease
   set token = token + 1, session = $2, grant_id = $3, thread = $4, note = $5,
       acquired_at = {now}, changed_at = {now}, deadline = {now} + $6
 where name = $1 and token = $7 and session is null
   and (select f.floor from rowlock_session m straight_join rowlock_token_floor f
         where m.id = $2 and {live} and f.id = 1) <= $7
   and coalesce(exists (select 1 from rowlock_waiter w where w.name = $1), 1) = 0
