-- Who we are on this connection: its id, its schema, which is a part of the names we lock, and whether
-- the server is read-only.
select connection_id(), database()
