-- statement fence
-- Locks a lease's row in the caller's transaction if it still has this grant; otherwise raises an error on
-- purpose. PostgreSQL then aborts the (sub)transaction, which cannot be committed by mistake, and at once
-- drops the lock that remains on a row whose recheck failed (the new holder's). The cast of a text that the
-- planner cannot fold raises the error; the text names the isolation level.
--
-- A take-over, a forced release and a reclaim write this row, so they wait for our commit;
-- heartbeats write the session's row. FOR SHARE, since FOR KEY SHARE would let those writes pass; shared,
-- so that two transactions may be fenced with one lease.
--
-- If another transaction writes the row between our snapshot and our lock, READ COMMITTED re-checks the
-- row's new version; above it the server raises 40001. A snapshot from before the grant does not match. The
-- session is read without a lock. If it ends after our snapshot, its lease's row is still ours, and the
-- client that ended it waits for that row. If it ended before, the fence fails; otherwise a series of
-- fences could keep the successor waiting indefinitely. The deadline's clock is read before a wait at
-- worst; the same holds.
--
-- lock_timeout bounds the wait on the server, for drivers that cannot cancel, and the same statement
-- restores it. A shorter lock_timeout of the caller's stays, and so does a shorter idle limit. Both are
-- local to the transaction and undone by a rollback.
-- Runs on the caller's handle, under any search path: every operator, function and type names pg_catalog
-- (docs/adr/0033).
-- $1 name  $2 session  $3 token  $4 idle limit in ms  $5 longest wait for the row in ms
with {bounded},
     held as materialized (
         select bounded.lock_timeout, bounded.idle
           from bounded, rowlock_lock l, rowlock_session s
          where l.name operator(pg_catalog.=) $1::pg_catalog.text
            and l.session operator(pg_catalog.=) $2::bigint
            and l.token operator(pg_catalog.=) $3::bigint
            and s.id operator(pg_catalog.=) l.session and not s.ended
            and coalesce(l.deadline operator(pg_catalog.>) pg_catalog.clock_timestamp(), true)
            for share of l)
select case when exists (select from held) then 1
            else ('rowlock: the lease is not held any more, isolation level '
                  operator(pg_catalog.||) pg_catalog.current_setting('transaction_isolation'))::bigint
            end,
       (select pg_catalog.set_config('lock_timeout', held.lock_timeout, true) from held),
       (select pg_catalog.set_config('idle_in_transaction_session_timeout', case
                   when held.idle::interval operator(pg_catalog.>=) interval '1 us'
                    and held.idle::interval operator(pg_catalog.<=)
                        ($4::bigint operator(pg_catalog.*) interval '1 ms')
                   then held.idle else $4::bigint::pg_catalog.text end, true)
          from held)

-- statement release_on_commit
-- Frees a lease in the caller's transaction if it still has this grant; otherwise raises an error, as fence
-- does, whose reasons all hold here. The row lock is exclusive from here on: a taker sees the row free once
-- we commit, and ours again if we roll back.
-- Runs on the caller's handle, under any search path: every operator, function and type names pg_catalog
-- (docs/adr/0033).
-- $1 name  $2 session  $3 token  $4 idle limit in ms  $5 longest wait for the row in ms  $6 grant id
with {bounded},
     freed as (
         update rowlock_lock l
            set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
                deadline = null, changed_at = pg_catalog.clock_timestamp()
           from bounded, rowlock_session s
          where l.name operator(pg_catalog.=) $1::pg_catalog.text
            and l.session operator(pg_catalog.=) $2::bigint
            and l.token operator(pg_catalog.=) $3::bigint
            and l.grant_id operator(pg_catalog.=) $6::bigint
            and s.id operator(pg_catalog.=) l.session and not s.ended
            and coalesce(l.deadline operator(pg_catalog.>) pg_catalog.clock_timestamp(), true)
         returning bounded.lock_timeout, bounded.idle)
select case when exists (select from freed) then 1
            else ('rowlock: the lease is not held any more, isolation level '
                  operator(pg_catalog.||) pg_catalog.current_setting('transaction_isolation'))::bigint
            end,
       (select pg_catalog.set_config('lock_timeout', freed.lock_timeout, true) from freed),
       (select pg_catalog.set_config('idle_in_transaction_session_timeout', case
                   when freed.idle::interval operator(pg_catalog.>=) interval '1 us'
                    and freed.idle::interval operator(pg_catalog.<=)
                        ($4::bigint operator(pg_catalog.*) interval '1 ms')
                   then freed.idle else $4::bigint::pg_catalog.text end, true)
          from freed)

-- statement fence_permits
-- The fence of a hold of permits: of a semaphore, or of a shared_mutex in one of its modes. It locks the hold's
-- row, and all that fence says holds: every end of a hold deletes that row before it lowers the counter, so what
-- the hold excludes stays excluded until our commit. sweep_permits passes over a locked row.
-- Runs on the caller's handle, under any search path: every operator, function and type names pg_catalog
-- (docs/adr/0033).
-- $1 name  $2 session  $3 grant id  $4 idle limit in ms  $5 longest wait for the row in ms
with {bounded},
     held as materialized (
         select bounded.lock_timeout, bounded.idle
           from bounded, rowlock_hold l, rowlock_session s
          where l.name operator(pg_catalog.=) $1::pg_catalog.text
            and l.session operator(pg_catalog.=) $2::bigint
            and l.grant_id operator(pg_catalog.=) $3::bigint
            and s.id operator(pg_catalog.=) l.session and not s.ended
            and coalesce(l.deadline operator(pg_catalog.>) pg_catalog.clock_timestamp(), true)
            for share of l)
select case when exists (select from held) then 1
            else ('rowlock: the lease is not held any more, isolation level '
                  operator(pg_catalog.||) pg_catalog.current_setting('transaction_isolation'))::bigint
            end,
       (select pg_catalog.set_config('lock_timeout', held.lock_timeout, true) from held),
       (select pg_catalog.set_config('idle_in_transaction_session_timeout', case
                   when held.idle::interval operator(pg_catalog.>=) interval '1 us'
                    and held.idle::interval operator(pg_catalog.<=)
                        ($4::bigint operator(pg_catalog.*) interval '1 ms')
                   then held.idle else $4::bigint::pg_catalog.text end, true)
          from held)

-- statement fence_quorum_token
-- The guard of a transaction of the caller's beside fence(): no later token of the quorum is known here, nor will be
-- before the transaction ends. FOR SHARE: a claim, a write and a seal wait. Otherwise an error on purpose, as of fence.
-- Runs on the caller's handle, under any search path: every operator, function and type names pg_catalog
-- (docs/adr/0033).
-- $1 name  $2 token  $3, $4 not used  $5 longest wait for the row in ms
with {bounded},
     held as materialized (
         select bounded.lock_timeout from bounded, rowlock_quorum q
          where q.name operator(pg_catalog.=) $1::pg_catalog.text and q.token operator(pg_catalog.<=) $2::bigint
            for share of q)
select case when exists (select from held) then 1
            else ('rowlock: the lease is not held any more, isolation level '
                  operator(pg_catalog.||) pg_catalog.current_setting('transaction_isolation'))::bigint end,
       (select pg_catalog.set_config('lock_timeout', held.lock_timeout, true) from held),
       $3::bigint, $4::bigint
