-- Limits of a row session's transaction, for this transaction alone: a pooler may give the server
-- connection to another client afterwards. A shorter limit that the administrator has set stays.
-- idle_in_transaction ends a client that hangs; statement_timeout a statement whose client has gone;
-- transaction_timeout, since PostgreSQL 17, the whole.
-- $1 max_hold in ms  $2 lock timeout in ms for the caller's own statements
select set_config('idle_in_transaction_session_timeout',
                  case when current_setting('idle_in_transaction_session_timeout')::interval
                            between interval '1 ms' and $1::int8 * interval '1 ms'
                       then current_setting('idle_in_transaction_session_timeout')
                       else $1::int8::text end, true),
       set_config('statement_timeout',
                  case when current_setting('statement_timeout')::interval
                            between interval '1 ms' and $1::int8 * interval '1 ms'
                       then current_setting('statement_timeout') else $1::int8::text end, true),
       case when current_setting('transaction_timeout', true) is not null
            then set_config('transaction_timeout',
                            case when current_setting('transaction_timeout', true)::interval
                                      between interval '1 ms' and $1::int8 * interval '1 ms'
                                 then current_setting('transaction_timeout', true)
                                 else $1::int8::text end, true) end,
       set_config('lock_timeout', $2::text, true)
