-- Candidates of an election say which of them is to lead before the others, and a leader whom it has chosen.
--   priority  of a candidate; the greatest leads first
--   heir      grant id of the candidate in whose favour a leader steps down: it leads whatever its priority
alter table rowlock_waiter add column priority smallint not null default 0;
alter table rowlock_lease add column heir bigint;
