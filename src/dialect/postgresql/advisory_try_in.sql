-- One attempt at a transaction-level lock in the caller's transaction. The reasons to refuse are looked
-- at in the same statement, before it locks. Above READ COMMITTED this very statement has taken the
-- snapshot of the whole transaction, before the lock: what the lock protects would be read stale.
-- $1 key  $2 1 if the key is a pair of integers  $3 1 = shared  $4 1 = any isolation will do
select case when pg_is_in_recovery() then 'standby'
            when $4::int = 0
             and current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')
            then 'isolation'
            when case when $2::int = 0 and $3::int = 0 then pg_try_advisory_xact_lock($1::bigint)
                      when $2::int = 0 then pg_try_advisory_xact_lock_shared($1::bigint)
                      when $3::int = 0 then pg_try_advisory_xact_lock(($1::bigint >> 32)::int,
                               (($1::bigint << 32) >> 32)::int)
                      else pg_try_advisory_xact_lock_shared(($1::bigint >> 32)::int,
                               (($1::bigint << 32) >> 32)::int) end
            then 'ours' else 'busy' end
