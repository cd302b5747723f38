-- Frees a lease in the caller's transaction if it is still this grant; otherwise raises an error, as
-- fence.sql does, whose reasons all hold here. The lock is exclusive from here on: a taker sees the
-- row free once we commit, and ours again if we roll back.
-- $1 name  $2 session  $3 token  $4 idle limit in ms  $5 longest wait for the row in ms  $6 grant id
with {bounded},
     freed as (
         update rowlock_lease l
            set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
                deadline = null, changed_at = clock_timestamp()
           from bounded, rowlock_session s
          where l.name = $1::text and l.session = $2::bigint and l.token = $3::bigint
            and l.grant_id = $6::bigint and s.id = l.session and not s.ended
            and coalesce(l.deadline > clock_timestamp(), true)
         returning bounded.lock_timeout, bounded.idle)
select case when exists (select from freed) then 1
            else ('rowlock: the lease is not held any more, isolation level '
                  || current_setting('transaction_isolation'))::bigint end,
       (select set_config('lock_timeout', freed.lock_timeout, true) from freed),
       (select set_config('idle_in_transaction_session_timeout', case
                   when freed.idle::interval between interval '1 us'
                                                 and $4::bigint * interval '1 ms'
                   then freed.idle else $4::bigint::text end, true)
          from freed)
