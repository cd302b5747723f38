-- Entries that one request for modes of several shared_mutexes has in their queues say so: none of them is served alone.
--   members  in how many queues the request has an entry; the tickets of one request follow each other
alter table rowlock_permit_waiter add column members smallint not null default 1;
