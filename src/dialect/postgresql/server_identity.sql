-- Which server this is: its cluster's number and the timeline it writes. A restart, also after a crash,
-- goes on with both; a promotion or a recovery to a point in time begins a timeline. NULL on a standby.
-- pg_control_checkpoint() would tell the timeline late, with the next checkpoint. Everybody may call
-- these functions unless an administrator has taken the right away: then server_timeline.sql is tried.
select case when not pg_catalog.pg_is_in_recovery()
            then (select system_identifier::pg_catalog.text from pg_catalog.pg_control_system())
                 operator(pg_catalog.||) '/' operator(pg_catalog.||) {timeline} end
