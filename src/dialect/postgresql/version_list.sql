-- A page of resources for people, by name.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 first possible name  $2 upper end  $3 the last name of the page before  $4 how many
select resource, version, (deleted_at is not null)::int,
       (extract(epoch from pg_catalog.clock_timestamp() operator(pg_catalog.-) updated_at) operator(pg_catalog.*) 1000000)::bigint
  from rowlock_version
 where resource operator(pg_catalog.>=) $1::pg_catalog.text
   and resource operator(pg_catalog.<) $2::pg_catalog.text
   and resource operator(pg_catalog.>) $3::pg_catalog.text
 order by resource limit $4::bigint
