-- One attempt at a transaction-level lock in the caller's transaction. The reasons to refuse are looked
-- at in the same statement, before it locks. Above READ COMMITTED this very statement has taken the
-- snapshot of the whole transaction, before the lock: what the lock protects would be read stale.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 key  $2 1 if the key is a pair of integers  $3 1 = shared  $4 1 = any isolation will do
select case when pg_catalog.pg_is_in_recovery() then 'standby'
            when $4::int operator(pg_catalog.=) 0
             and pg_catalog.current_setting('transaction_isolation')
                 operator(pg_catalog.<>) all (array['read committed', 'read uncommitted'])
            then 'isolation'
            when case when $2::int operator(pg_catalog.=) 0 and $3::int operator(pg_catalog.=) 0 then pg_catalog.pg_try_advisory_xact_lock($1::bigint)
                      when $2::int operator(pg_catalog.=) 0 then pg_catalog.pg_try_advisory_xact_lock_shared($1::bigint)
                      when $3::int operator(pg_catalog.=) 0 then pg_catalog.pg_try_advisory_xact_lock(
                               ($1::bigint operator(pg_catalog.>>) 32)::int,
                               ($1::bigint operator(pg_catalog.<<) 32 operator(pg_catalog.>>) 32)::int)
                      else pg_catalog.pg_try_advisory_xact_lock_shared(
                               ($1::bigint operator(pg_catalog.>>) 32)::int,
                               ($1::bigint operator(pg_catalog.<<) 32 operator(pg_catalog.>>) 32)::int) end
            then 'ours' else 'busy' end
