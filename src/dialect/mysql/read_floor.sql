-- The token floor, and the server that it was raised for. No row: somebody deleted it, and nothing can be
-- granted.
select floor, server_identity from rowlock_token_floor where id = 1
