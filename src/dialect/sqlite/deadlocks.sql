-- What a search for circles of waiters needs, in one snapshot; reads only. The parties are pairs of
-- session and thread label; who has no label takes no part.
--
-- `reach` is the set of names that our places lead to: from a name to what its holder waits for, and to
-- what those in its queue wait for besides. A set of names ends where nothing new is found, also among
-- circles without us. Of a queue only those come back who can be in a circle: they hold something
-- here, or have more than one place. What is a circle, and who gives way, is decided by the caller.
-- $1 my session
-- → name; its holder's or waiter's: ticket (NULL: the holder), grant id, session, thread, note, host,
--   program, process id
with recursive reach (name) as (
         select w.name from rowlock_waiter w where w.session = $1 and w.thread is not null
         union
         select o.name
           from reach r cross join rowlock_lease l cross join rowlock_waiter o
          where l.name = r.name and o.session = l.session and o.thread = l.thread
         union
         select o.name
           from reach r cross join rowlock_waiter w cross join rowlock_waiter o
          where w.name = r.name and o.session = w.session and o.thread = w.thread),
     holder as (
         select l.name, l.session, l.thread, l.note, s.host, s.program, s.pid
           from reach r cross join rowlock_lease l cross join rowlock_session s
          where l.name = r.name and s.id = l.session and l.thread is not null and not {free})
select h.name, null, null, h.session, h.thread, h.note, h.host, h.program, h.pid
  from holder h
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, m.host, m.program, m.pid
  from reach r cross join rowlock_waiter w cross join rowlock_session m
 where w.name = r.name and m.id = w.session and {live}
   and (exists (select 1 from holder h where h.session = w.session and h.thread = w.thread)
        or exists (select 1 from rowlock_waiter o
                    where o.session = w.session and o.thread = w.thread and o.ticket <> w.ticket))
