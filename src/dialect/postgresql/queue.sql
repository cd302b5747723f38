-- The live waiters of one name, for people, in the order in which they will be served. Reads only.
-- $1 name
-- → ticket, session, owner, host, program, thread, note, pid, µs waited
select w.ticket, w.session, m.owner, m.host, m.program, w.thread, w.note, m.pid,
       (extract(epoch from clock_timestamp() - w.enqueued_at) operator(pg_catalog.*) 1000000)::bigint
  from rowlock_waiter w join rowlock_session m on m.id = w.session
 where w.name = $1::text and {live}
 order by w.ticket
