-- Gives back every named lock of this connection.
select release_all_locks()
