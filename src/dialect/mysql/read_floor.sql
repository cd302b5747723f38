-- The token floor. No row: somebody deleted it, and nothing can be granted.
select floor from rowlock_token_floor where id = 1
