-- A queue entry whose caller has a time limit is not served after it (docs/adr/0060). An earlier library leaves the
-- column alone: its clients may still serve an entry whose limit has passed, and its own entries have no limit here.
-- oldest library: 16
--   waits_until  the time limit of its caller; null: it has none
alter table rowlock_waiter add column waits_until bigint;
alter table rowlock_permit_waiter add column waits_until bigint;
