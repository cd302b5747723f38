-- Looks for old records among the first of the table, by primary key. Ids are nearly in the order of their
-- times: a younger record between older ones may go with them, and one older behind a younger goes later.
-- $1 retention in µs  $2 batch
-- → how many are old; the id of the last of them
select count(*), max(h.id)
  from (select o.id, o.at from rowlock_history o order by o.id limit $2::bigint) h
 where h.at < clock_timestamp() - $1::bigint::float8 * interval '1 microsecond'
