-- Gives a session-level lock back: 1 done, 0 it was not ours. Without our mark (see advisory_setup) the
-- process is somebody else's, and so would be the lock.
-- $1 key  $2 1 if the key is a pair of integers, the first in its upper half  $3 1 = shared
-- $4 mark
select case when current_setting('rowlock.session', true) is distinct from $4::text then 0
            when $2::int = 0 and $3::int = 0 then pg_advisory_unlock($1::bigint)::int
            when $2::int = 0 then pg_advisory_unlock_shared($1::bigint)::int
            when $3::int = 0 then pg_advisory_unlock(($1::bigint >> 32)::int,
                     (($1::bigint << 32) >> 32)::int)::int
            else pg_advisory_unlock_shared(($1::bigint >> 32)::int,
                     (($1::bigint << 32) >> 32)::int)::int end,
       case when current_setting('rowlock.session', true) = $4::text then pg_backend_pid()
            else 0 end
