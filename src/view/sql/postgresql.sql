-- Those of common.sql, with times whose type is not a number.

-- statement overview_now
-- → the database's clock
select (extract(epoch from clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint
