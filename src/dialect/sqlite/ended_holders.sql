-- Which ended sessions are named by leases, among some names.
-- $1 after which name  $2 up to which, NULL = to the last
select distinct l.session
  from rowlock_lease l cross join rowlock_session m
 where l.name > $1 and l.name <= coalesce($2, x'ff') and m.id = l.session and m.ended = 1
