-- Back to the columns and keys of 0001_initial.up.sql. Places in queues live for seconds and are lost.
delete from rowlock_waiter;
alter table rowlock_waiter drop column thread, drop column note, drop column deadline_us;
alter table rowlock_waiter drop column ticket;  -- and with it the key
alter table rowlock_waiter add column ticket bigint generated always as identity primary key;
create index on rowlock_waiter (name, ticket);
alter table rowlock_lease drop column if exists served, drop column if exists successor;
