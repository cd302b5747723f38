-- The live waiters of one name, for people, in the order in which they will be served. Reads only.
-- $1 name
-- → ticket, session, owner, host, program, thread, note, pid, µs waited
select w.ticket, w.session, m.owner, m.host, m.program, w.thread, w.note, m.pid,
       {now} - w.enqueued_at
  from rowlock_waiter w cross join rowlock_session m
 where w.name = $1 and m.id = w.session and {live}
 order by w.ticket
