-- Limits of a row session's transaction, for this transaction alone: a pooler may give the server
-- connection to another client afterwards. A shorter limit that the administrator has set stays.
-- idle_in_transaction ends a client that hangs; statement_timeout a statement whose client has gone;
-- transaction_timeout, since PostgreSQL 17, the whole.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 max_hold in ms  $2 lock timeout in ms for the caller's own statements
select pg_catalog.set_config('idle_in_transaction_session_timeout',
                  case when pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval
                             operator(pg_catalog.>=) interval '1 ms'
                        and pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval
                             operator(pg_catalog.<=) ($1::bigint operator(pg_catalog.*) interval '1 ms')
                       then pg_catalog.current_setting('idle_in_transaction_session_timeout')
                       else $1::bigint::pg_catalog.text end, true),
       pg_catalog.set_config('statement_timeout',
                  case when pg_catalog.current_setting('statement_timeout')::interval
                             operator(pg_catalog.>=) interval '1 ms'
                        and pg_catalog.current_setting('statement_timeout')::interval
                             operator(pg_catalog.<=) ($1::bigint operator(pg_catalog.*) interval '1 ms')
                       then pg_catalog.current_setting('statement_timeout') else $1::bigint::pg_catalog.text end, true),
       case when pg_catalog.current_setting('transaction_timeout', true) is not null
            then pg_catalog.set_config('transaction_timeout',
                            case when pg_catalog.current_setting('transaction_timeout', true)::interval
                             operator(pg_catalog.>=) interval '1 ms'
                        and pg_catalog.current_setting('transaction_timeout', true)::interval
                             operator(pg_catalog.<=) ($1::bigint operator(pg_catalog.*) interval '1 ms')
                                 then pg_catalog.current_setting('transaction_timeout', true)
                                 else $1::bigint::pg_catalog.text end, true) end,
       pg_catalog.set_config('lock_timeout', $2::pg_catalog.text, true)
