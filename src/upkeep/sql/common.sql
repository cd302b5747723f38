-- statement publish_floor
-- Declares the floor settled when it was raised longer ago than any statement can run: no insert that
-- computed its token under the old floor is still waiting.
-- $1 grace in µs
update rowlock_token_floor set settled = floor
 where id = 1 and settled < floor
   and raised_at <= {now} - {span($1)}

-- statement record_round
-- A reaper has ended a round, for people.
update rowlock_token_floor set reaped_at = {now} where id = 1

-- statement raise_floor
-- Raises the floor over the tokens of rows that will be deleted, once the last raise has settled.
-- Durable and committed before any deletion.
-- $1 greatest token
update rowlock_token_floor set floor = $1::bigint, raised_at = {now}
 where id = 1 and settled = floor and floor < $1::bigint

-- statement lift_floor
-- Raises the floor past the token of a lease whose row was deleted, or set back, by hand, as its holder
-- detected. `settled` stays, and follows a grace after raised_at: deletions wait longer, none comes too
-- early.
-- $1 token of the lost lease
update rowlock_token_floor set floor = $1::bigint, raised_at = {now}
 where id = 1 and floor < $1::bigint

-- statement ended_sessions
-- A batch of ended sessions without a ticket.
-- $1 after which id  $2 batch
select m.id from rowlock_session m
 where m.ended and m.id > $1::bigint
   and not exists (select 1 from rowlock_ticket w where w.session = m.id)
 order by m.id limit $2::bigint

-- statement old_history
-- Finds old records among the first of the table, by primary key. Ids are nearly in time order: a younger
-- record between older ones may be deleted with them, and an older one behind a younger is deleted later.
-- $1 retention in µs  $2 batch
-- → how many are old; the id of the last of them
select count(*), max(h.id)
  from (select o.id, o.at from rowlock_history o order by o.id limit $2::bigint) h
 where h.at < {now} - {span($1)}

-- statement delete_history
-- Deletes old records up to an id, by primary key; writers insert at the other end. Of two reapers the second
-- finds nothing left.
-- $1 id
delete from rowlock_history where id <= $1::bigint

-- statement history
-- Records of the history, the latest first, by primary key.
-- $1 before which id  $2 limit
-- → the columns that read_history reads: {history}
select {history} from rowlock_history h
 where h.id operator(pg_catalog.<) $1::bigint order by h.id desc limit $2::bigint

-- statement history_of
-- The same for one name, by the index on (name, id).
-- $1 name  $2 before which id  $3 limit
-- → {history}
select {history} from rowlock_history h
 where h.name operator(pg_catalog.=) $1::pg_catalog.text and h.id operator(pg_catalog.<) $2::bigint
 order by h.id desc limit $3::bigint

-- statement read_floor
-- The token floor. No row: it was deleted, and nothing can be granted.
select floor, server_identity from rowlock_token_floor where id = 1
