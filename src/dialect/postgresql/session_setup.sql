-- Settings of a connection that we own. Isolation: READ COMMITTED, which the compare-and-set
-- protocol is proved at. Durability: a grant must survive a crash, so `off` becomes `on` and anything
-- stricter stays. Timeouts: the server ends a statement that its client may have given up. Plans: all
-- look-ups are by primary key, so a generic plan is as good as one made for the values.
-- The first column tells which server this is: server_identity.sql has its reasons.
-- $1 lock timeout in ms  $2 statement timeout in ms
select case when not pg_is_in_recovery()
            then (select system_identifier from pg_control_system()) || '/' || {timeline} end,
       {settings}
