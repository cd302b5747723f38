-- statement set_max_hold
-- Limits how long a grant of a name may be held. One row by primary key: of two clients the later one counts. Repeatable
-- after a lost reply. A reaper that has read the row before asks by the limit before (overdue_leases).
-- $1 name  $2 limit in µs
insert into rowlock_policy (name, max_hold_us) values ($1, $2)
on conflict (name) do update set max_hold_us = excluded.max_hold_us
