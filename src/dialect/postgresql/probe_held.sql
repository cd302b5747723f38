-- probe_all.sql for one name.
-- $1 name
-- → a row if it is held
select 1
  from rowlock_lease l join rowlock_session m on m.id = l.session
 where l.name = $1::text and {live} and (l.deadline is null or l.deadline > clock_timestamp())
