-- One attempt at a lock: 1 ours, 0 held by another, NULL an error, -1 refused by a read-only server,
-- which a replica is: it grants its own. IF evaluates only the branch it takes. Behind a proxy that
-- shares connections the id would change.
-- $1 name
select if(cast(@@global.read_only as char) in ('0', 'OFF'), get_lock($1, 0), -1), connection_id()
