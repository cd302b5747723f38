-- statement before_listen
-- What a client asks before it LISTENs: LISTEN reads the whole queue of notifications, and no cancel, closed connection or
-- pg_terminate_backend() interrupts it. Also whether an earlier LISTEN of this client, which met its deadline,
-- is still running: its process is there, and began when it did (numbers of processes are used again).
-- $1 the process of that LISTEN  $2 when it began, in µs since 1970; or NULL twice
-- → how full the server's queue of notifications is, in millionths; 1 if that process is there; the number of
--   this connection's process, and when it began, or NULL
select (pg_catalog.pg_notification_queue_usage() operator(pg_catalog.*) 1000000::pg_catalog.float8)::bigint,
       (select pg_catalog.count(*) from pg_catalog.pg_stat_activity a
         where a.pid operator(pg_catalog.=) $1::int
           and (extract(epoch from a.backend_start) operator(pg_catalog.*) 1000000)::bigint operator(pg_catalog.=) $2::bigint),
       pg_catalog.pg_backend_pid()::bigint,
       (select (extract(epoch from a.backend_start) operator(pg_catalog.*) 1000000)::bigint
          from pg_catalog.pg_stat_activity a where a.pid operator(pg_catalog.=) pg_catalog.pg_backend_pid())
