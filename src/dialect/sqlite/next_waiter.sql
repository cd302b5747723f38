-- A look at a lease and at the first live ticket of its queue, in one snapshot: reads, locks nothing.
-- What is given to that ticket is given by compare-and-set on the token seen here.
-- $1 name
-- → the token a grant would carry; whether the lease has a row, its token, whether it is free, its
--   session, its grant id; the ticket, its session, grant id, thread, note, deadline in µs, and its
--   session's wake-up address, secret and mailbox, or NULLs
select max(coalesce(l.token, 0), f.floor) + 1,
       l.name is not null, l.token, {free}, l.session, l.grant_id,
       w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
       w.wake_address, w.wake_secret, w.mailbox
  from rowlock_token_floor f
       left join rowlock_lease l on l.name = $1
       left join rowlock_session s on s.id = l.session
       left join (select o.ticket, o.session, o.grant_id, o.thread, o.note, o.deadline_us,
                         m.wake_address, m.wake_secret, m.mailbox
                    from rowlock_waiter o cross join rowlock_session m
                   where o.name = $1 and m.id = o.session and {live}
                   order by o.ticket limit 1) w on 1 = 1
 where f.id = 1
