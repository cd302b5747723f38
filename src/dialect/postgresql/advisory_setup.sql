-- Settings of a connection that holds advisory locks, and who we are there. Keepalives on the server's
-- side: a client machine that vanished is noticed after some 25 s. An idle session limit of the
-- server's (since 14) would end our locks: ours replaces it.
-- And a mark, by which every statement that locks or unlocks knows this server process before it does.
-- A process that holds advisory locks has an owner, who may be somebody else behind a transaction
-- pooler, or has locks left over that it would grant once more: it is refused and keeps its mark. So a
-- process has locks of the client alone whose mark it bears, however a pooler hands it round: a process
-- runs one statement at a time.
-- $1 statement timeout in ms  $2 idle session timeout in ms, 0 = leave the server's  $3 mark
select pg_catalog.pg_backend_pid(),
       case when exists (select from pg_catalog.pg_locks where locktype operator(pg_catalog.=) 'advisory'
                            and pid operator(pg_catalog.=) pg_catalog.pg_backend_pid())
            then 0 else pg_catalog.length(pg_catalog.set_config('rowlock.session', $3::pg_catalog.text, false)) end,
       pg_catalog.set_config('statement_timeout', $1::pg_catalog.text, false),
       pg_catalog.set_config('lock_timeout', '0', false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', $1::pg_catalog.text, false),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),
       pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
       pg_catalog.set_config('tcp_keepalives_idle', '10', false),
       pg_catalog.set_config('tcp_keepalives_interval', '5', false),
       pg_catalog.set_config('tcp_keepalives_count', '3', false),
       (select pg_catalog.set_config(name, $2::pg_catalog.text, false)
          from pg_catalog.pg_settings where name operator(pg_catalog.=) 'idle_session_timeout'
           and $2::pg_catalog.text operator(pg_catalog.<>) '0')
