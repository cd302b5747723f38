-- Locks a lease's row in the caller's transaction if it is still this grant; otherwise raises an
-- error on purpose: PostgreSQL then aborts the (sub)transaction, which cannot be committed by
-- mistake, and drops at once the lock that a row keeps whose recheck failed (the new holder's).
-- A cast of a text that the planner cannot fold raises it; the text tells the isolation level.
--
-- A take-over, a forced release and a reclaim write this row, so they wait for our commit;
-- heartbeats write the session's. FOR SHARE, since FOR KEY SHARE would let those writes pass; shared,
-- so that two transactions may be fenced with one lease.
--
-- Who writes the row between our snapshot and our lock: READ COMMITTED re-checks the new version of
-- the row; above it the server raises 40001. A snapshot from before the grant does not match.
-- The session is read without a lock: ended after our snapshot, its lease's row is still ours, and
-- whoever ended it waits for that. Ended before, the fence fails, or a row of fences could keep the
-- successor waiting for ever. The deadline's clock is read before a wait at worst; the same holds.
--
-- lock_timeout bounds the wait on the server, for drivers that cannot cancel, and is put back in
-- the same statement; a shorter one of the caller's stays, and so does a shorter idle limit. Both
-- are local to the transaction and undone by a rollback.
-- $1 name  $2 session  $3 token  $4 idle limit in ms  $5 longest wait for the row in ms
with {bounded},
     held as materialized (
         select bounded.lock_timeout, bounded.idle
           from bounded, rowlock_lease l, rowlock_session s
          where l.name = $1::text and l.session = $2::bigint and l.token = $3::bigint
            and s.id = l.session and not s.ended
            and coalesce(l.deadline > clock_timestamp(), true)
            for share of l)
select case when exists (select from held) then 1
            else ('rowlock: the lease is not held any more, isolation level '
                  || current_setting('transaction_isolation'))::bigint end,
       (select set_config('lock_timeout', held.lock_timeout, true) from held),
       (select set_config('idle_in_transaction_session_timeout', case
                   when held.idle::interval between interval '1 us'
                                                and $4::bigint * interval '1 ms'
                   then held.idle else $4::bigint::text end, true)
          from held)
