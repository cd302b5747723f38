-- Raises the floor past the token of a lease whose row was deleted, or set back, by hand: its holder found
-- out. `settled` stays, and follows a grace after raised_at: deletions wait longer, none comes too early.
-- $1 token of the lost lease
update rowlock_token_floor set floor = $1::bigint, raised_at = clock_timestamp()
 where id = 1 and floor < $1::bigint
