-- Waits for a lock for one slice of time, in the server's own queue. Says nothing about the outcome:
-- look with advisory_held (session level) or try again (transaction level, which is re-entrant), for
-- the lock may also be granted in the moment in which the time ends. DO takes no parameters: $1 and
-- $2 are replaced in the text, by digits and by a function call over digits. A block, so that the
-- time-out is caught on the server: it neither aborts the caller's transaction nor fills the
-- server's log. The setting is local to the block's transaction and put back at once; a time-out
-- undoes it with the block. A session-level lock survives that undoing, as it must: it ignores
-- transactions. A slice, because the wait holds a snapshot for which CREATE INDEX CONCURRENTLY waits.
-- Shorter than the statement timeout in force, which would fail the statement.
-- Shorter than deadlock_timeout, too: two transactions that wait for each other both get theirs back.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 slice in ms  $2 such as pg_advisory_lock(42)  $3 a condition under which nothing is to be locked
do '
declare
    timeout constant int default (select cast(setting as int) from pg_catalog.pg_settings
                              where name operator(pg_catalog.=) ''statement_timeout'');
    patience constant int default (select cast(setting as int) from pg_catalog.pg_settings
                                   where name operator(pg_catalog.=) ''deadlock_timeout'');
    before constant pg_catalog.text default pg_catalog.current_setting(''lock_timeout'');
begin
    if $3 or pg_catalog.pg_is_in_recovery() then
        return;
    end if;
    perform pg_catalog.set_config(''lock_timeout'',
        cast(greatest(1, least($1, case when timeout operator(pg_catalog.>) 0
                                        then timeout operator(pg_catalog./) 2 else $1 end,
                               patience operator(pg_catalog./) 2)) as pg_catalog.text),
        true);
    perform $2;
    perform pg_catalog.set_config(''lock_timeout'', before, true);
exception when lock_not_available then
    null;
end'
