-- Settings of a connection that holds advisory locks, and who we are there. Keepalives on the server's
-- side: a client machine that vanished is noticed after some 25 s. An idle session limit of the
-- server's (since 14) would end our locks: ours replaces it.
-- $1 statement timeout in ms  $2 idle session timeout in ms, 0 = leave the server's
select pg_backend_pid(),
       '',
       set_config('statement_timeout', $1::text, false),
       set_config('lock_timeout', '0', false),
       set_config('idle_in_transaction_session_timeout', $1::text, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('tcp_keepalives_idle', '10', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false),
       (select set_config(name, $2::text, false)
          from pg_settings where name = 'idle_session_timeout' and $2::text <> '0')
