-- The same for one name, by the index on (name, id).
-- $1 name  $2 before which id  $3 at most so many
-- → {history}
select {history} from rowlock_history
 where name operator(pg_catalog.=) $1::pg_catalog.text and id operator(pg_catalog.<) $2::bigint
 order by id desc limit $3::bigint
