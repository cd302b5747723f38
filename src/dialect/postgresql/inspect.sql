-- One name for people. No row if it has neither a lease nor a live waiter (who waits for a lease that
-- was reaped makes it anew).
-- $1 name
select {info}
  from (select $1::text as name) n
       left join rowlock_lease l on l.name = n.name
       left join rowlock_session s on s.id = l.session
       cross join {queue}
 where l.name is not null or q.waiting > 0
