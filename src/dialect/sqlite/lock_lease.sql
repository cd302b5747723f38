-- Whether a lease is still this grant. The transaction has the file's write lock from its beginning.
-- $1 name  $2 token  $3 session
select 1 from rowlock_lease where name = $1 and token = $2 and session = $3
