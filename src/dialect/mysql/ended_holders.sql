-- Which ended sessions are named by leases. Reads the table, once a round in which there are any.
select distinct l.session
  from rowlock_lease l straight_join rowlock_session m
 where l.session is not null and m.id = l.session and m.ended = 1
