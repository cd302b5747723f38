-- Records of the history, the latest first, by primary key.
-- $1 before which id  $2 at most so many
-- → the columns that read_history reads: {history}
select {history} from rowlock_history
 where id operator(pg_catalog.<) $1::bigint order by id desc limit $2::bigint
