-- Gives up places; durable, since a ticket that came back after a crash would be served to nobody. A
-- ticket that a grant has locked is waited for, and is gone then. In ticket order, so two calls cannot
-- wait in a circle; whoever grants holds no more than one ticket, and waits for nothing once it has it.
-- $1 grant ids, as an array's text
-- → the grant ids whose tickets this call deleted
with k as materialized (
         select w.name, w.ticket from rowlock_waiter w where w.grant_id = any ($1::text::bigint[])
          order by w.ticket for update of w)
delete from rowlock_waiter w using k
 where w.name = k.name and w.ticket = k.ticket returning w.grant_id
