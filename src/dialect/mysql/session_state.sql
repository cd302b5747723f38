-- Whether a session lives, and its revision. No row: gone.
-- $1 session
select {live}, m.revision from rowlock_session m where m.id = $1
