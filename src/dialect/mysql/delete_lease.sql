-- Deletes one of them, if nothing has happened to it since.
-- $1 name  $2 token  $3 changed_at
delete from rowlock_lease where name = $1 and token = $2 and session is null and changed_at = $3
