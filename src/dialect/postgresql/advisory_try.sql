-- One attempt at a session-level lock: 1 ours, 0 held by another, -1 refused by a standby, which would
-- grant it apart from its primary. Asked in the statement that locks: the server's role may have
-- changed a moment before. CASE evaluates only the branch it takes. Behind a transaction pooler the
-- process changes between statements, and the lock would stay with a process that is not ours: 0, and
-- nothing is locked, where our mark is missing.
-- Session-level locks ignore transactions; the lock is ours when the function returns, whatever
-- becomes of the reply.
-- $1 key  $2 1 if the key is a pair of integers, the first in its upper half  $3 1 = shared
-- $4 mark
select case when current_setting('rowlock.session', true) is distinct from $4::text then 0
            when pg_is_in_recovery() then -1
            when $2::int = 0 and $3::int = 0 then pg_try_advisory_lock($1::bigint)::int
            when $2::int = 0 then pg_try_advisory_lock_shared($1::bigint)::int
            when $3::int = 0 then pg_try_advisory_lock(($1::bigint >> 32)::int,
                     (($1::bigint << 32) >> 32)::int)::int
            else pg_try_advisory_lock_shared(($1::bigint >> 32)::int,
                     (($1::bigint << 32) >> 32)::int)::int end,
       case when current_setting('rowlock.session', true) = $4::text then pg_backend_pid()
            else 0 end
