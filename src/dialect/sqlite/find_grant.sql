-- What became of an acquire whose reply was lost: its token, or no row.
-- $1 name  $2 my session  $3 grant id
select token from rowlock_lease where name = $1 and session = $2 and grant_id = $3
