-- Writes into the floor's row which server this is, and raises the floor if another one stood there:
-- past all that the primary before may have granted and this server never heard of (docs/adr/0028). Of
-- two at once the second waits for the row, finds it changed and leaves it. Assignments go from left to
-- right: the compared column comes last.
-- $1 this server
update rowlock_token_floor
   set floor = if(server_identity = '', floor, floor + 4294967296), raised_at = {now},
       server_identity = $1
 where id = 1 and server_identity <> $1 and octet_length($1) > 0
