-- Gives a lock back: 1 done, 0 it is another's, NULL nobody has it.
-- $1 name
select release_lock($1), connection_id()
