-- statement advisory_held
-- Whether each of eight names is ours, 1, 0 or NULL; who we are; and whether the server is writable: a
-- primary that was made a replica grants its locks apart from the new primary.
-- $1 … $8 names; may repeat
select connection_id(), cast(@@global.read_only as char) in ('0', 'OFF'),
       is_used_lock($1) = connection_id(), is_used_lock($2) = connection_id(),
       is_used_lock($3) = connection_id(), is_used_lock($4) = connection_id(),
       is_used_lock($5) = connection_id(), is_used_lock($6) = connection_id(),
       is_used_lock($7) = connection_id(), is_used_lock($8) = connection_id()

-- statement advisory_setup
-- Who we are on this connection: its id, its schema, which is a part of the names we lock, and whether
-- the server is read-only.
select connection_id(), database()

-- statement advisory_try
-- One attempt at a lock: 1 ours, 0 held by another, NULL an error, -1 refused by a read-only server,
-- which a replica is: it grants its own. IF evaluates only the branch it takes. Behind a proxy that
-- shares connections the id would change.
-- $1 name
select if(cast(@@global.read_only as char) in ('0', 'OFF'), get_lock($1, 0), -1), connection_id()

-- statement advisory_unlock
-- Gives a lock back: 1 done, 0 it is another's, NULL nobody has it.
-- $1 name
select release_lock($1), connection_id()

-- statement advisory_unlock_all
-- Gives back every named lock of this connection.
select release_all_locks()

-- statement advisory_wait
-- The same, waiting in the server's own queue for one slice of time.
-- $1 name  $2 slice in ms; whole seconds on MySQL, which rounds
select if(cast(@@global.read_only as char) in ('0', 'OFF'), get_lock($1, $2 / 1000), -1),
       connection_id()
