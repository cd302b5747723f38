-- Settings of a connection that we own. Isolation: READ COMMITTED, which the compare-and-set
-- protocol is proved at. Durability: a grant must survive a crash, so `off` becomes `on` and anything
-- stricter stays. Timeouts: the server ends a statement that its client may have given up. Plans: all
-- look-ups are by primary key, so a generic plan is as good as one made for the values.
-- $1 lock timeout in ms  $2 statement timeout in ms
select set_config('default_transaction_isolation', 'read committed', false),
       set_config('default_transaction_read_only', 'off', false),
       set_config('synchronous_commit',
                  case current_setting('synchronous_commit') when 'off' then 'on'
                       else current_setting('synchronous_commit') end, false),
       set_config('lock_timeout', $1::text, false),
       set_config('statement_timeout', $2::text, false),
       set_config('idle_in_transaction_session_timeout', $2::text, false),
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('jit', 'off', false)
