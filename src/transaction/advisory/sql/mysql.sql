-- statement advisory_held
-- Whether this connection holds each of eight names (1, 0 or NULL), its id, and whether the server is
-- writable: a primary demoted to a replica grants its locks independently of the new primary.
-- $1 … $8 names; may repeat
select connection_id(), cast(@@global.read_only as char) in ('0', 'OFF'),
       is_used_lock($1) = connection_id(), is_used_lock($2) = connection_id(),
       is_used_lock($3) = connection_id(), is_used_lock($4) = connection_id(),
       is_used_lock($5) = connection_id(), is_used_lock($6) = connection_id(),
       is_used_lock($7) = connection_id(), is_used_lock($8) = connection_id()

-- statement advisory_setup
-- This connection's id, and its schema, which is part of the names we lock.
select connection_id(), database()

-- statement advisory_try
-- One attempt at a lock: 1 ours, 0 held by another session, NULL an error, -1 refused by a read-only
-- server, such as a replica, which grants its own locks. IF evaluates only the branch it takes. Behind a
-- proxy that shares connections the id would change.
-- $1 name
select if(cast(@@global.read_only as char) in ('0', 'OFF'), get_lock($1, 0), -1), connection_id()

-- statement advisory_unlock
-- Releases a lock: 1 done, 0 another session holds it, NULL no session holds it.
-- $1 name
select release_lock($1), connection_id()

-- statement advisory_unlock_all
-- Releases every named lock of this connection.
select release_all_locks()

-- statement advisory_wait
-- As advisory_try, but waits in the server's own queue for one time slice.
-- $1 name  $2 slice in ms; whole seconds on MySQL, which rounds
select if(cast(@@global.read_only as char) in ('0', 'OFF'), get_lock($1, $2 / 1000), -1),
       connection_id()
