-- What a search for circles of waiters needs, in one snapshot; reads only. The parties are pairs of
-- session and thread label; who has no label takes no part.
--
-- `reach` is the set of names that our places lead to: from a name to what its holder waits for, and to
-- what those in its queue wait for besides. A set of names ends where nothing new is found, also among
-- circles without us. Of a queue only those come back who can be in a circle: they hold something
-- here, or have more than one place. What is a circle, and who gives way, is decided by the caller.
-- OFFSET 0 keeps each look-up a look-up by key: the planner knows nothing of how few names are reached,
-- and would read whole tables.
-- $1 my session
-- → name; its holder's or waiter's: ticket (NULL: the holder), grant id, session, thread, note, host,
--   program, process id
with recursive reach (name) as (
         select w.name from rowlock_waiter w
          where w.session = $1::bigint and w.thread is not null
         union
         select o.name
           from reach r
                cross join lateral (
                    (select l.session, l.thread from rowlock_lease l where l.name = r.name offset 0)
                    union all
                    (select w.session, w.thread from rowlock_waiter w where w.name = r.name
                     offset 0)) p
                cross join lateral (
                    select o.name from rowlock_waiter o
                     where o.session = p.session and o.thread = p.thread offset 0) o),
     holder as materialized (
         select h.*
           from reach r
                cross join lateral (
                    select l.name, l.session, l.thread, l.note, s.host, s.program, s.pid
                      from rowlock_lease l join rowlock_session s on s.id = l.session
                     where l.name = r.name and l.thread is not null and not {free} offset 0) h)
select h.name, null::bigint, null::bigint, h.session, h.thread, h.note, h.host, h.program, h.pid
  from holder h
union all
select w.name, w.ticket, w.grant_id, w.session, w.thread, w.note, w.host, w.program, w.pid
  from reach r
       cross join lateral (
           select w.*, m.host, m.program, m.pid
             from rowlock_waiter w join rowlock_session m on m.id = w.session
            where w.name = r.name and {live} offset 0) w
 where (w.session, w.thread) in (select h.session, h.thread from holder h)
    or exists (select from rowlock_waiter o
                where o.session = w.session and o.thread = w.thread and o.ticket <> w.ticket)
