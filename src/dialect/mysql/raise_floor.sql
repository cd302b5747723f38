-- Raises the floor over the tokens of rows that will be deleted, once the last raise has settled.
-- Committed before any deletion.
-- $1 greatest token
update rowlock_token_floor set floor = $1, raised_at = {now}
 where id = 1 and settled = floor and floor < $1
