-- The same, waiting in the server's own queue for one slice of time.
-- $1 name  $2 slice in ms; whole seconds on MySQL, which rounds
select if(cast(@@global.read_only as char) in ('0', 'OFF'), get_lock($1, $2 / 1000), -1),
       connection_id()
