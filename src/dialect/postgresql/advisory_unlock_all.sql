-- Gives back every session-level advisory lock of this connection.
select pg_advisory_unlock_all()
