-- Whether each of eight names is ours, 1, 0 or NULL; who we are; and whether the server is writable: a
-- primary that was made a replica grants its locks apart from the new primary.
-- $1 … $8 names; may repeat
select connection_id(), cast(@@global.read_only as char) in ('0', 'OFF'),
       is_used_lock($1) = connection_id(), is_used_lock($2) = connection_id(),
       is_used_lock($3) = connection_id(), is_used_lock($4) = connection_id(),
       is_used_lock($5) = connection_id(), is_used_lock($6) = connection_id(),
       is_used_lock($7) = connection_id(), is_used_lock($8) = connection_id()
