-- Raises the floor over the tokens of rows that will be deleted, once the last raise has settled.
-- Durable and committed before any deletion.
-- $1 greatest token
update rowlock_token_floor set floor = $1::bigint, raised_at = clock_timestamp()
 where id = 1 and settled = floor and floor < $1::bigint
