-- How many pages the table of leases has, and how many a statement over some of them should look at,
-- at the least: before PostgreSQL 14 a condition on ctid reads the whole table, then one statement
-- has them all. The table is found by one of its rows; without any there is nothing to do.
select coalesce(pg_catalog.pg_relation_size(t.id) / current_setting('block_size')::bigint, 0),
       case when current_setting('server_version_num')::int >= 140000 then 1
            else coalesce(pg_catalog.pg_relation_size(t.id) / current_setting('block_size')::bigint, 0) end
  from (select (select l.tableoid from rowlock_lease l limit 1) as id) t
