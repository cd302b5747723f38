-- As server_identity.sql, where pg_control_system() is forbidden: promotions are seen, another cluster
-- that is at the same timeline is not.
select case when not pg_catalog.pg_is_in_recovery() then '/' operator(pg_catalog.||) {timeline} end
