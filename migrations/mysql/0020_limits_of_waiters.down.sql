alter table rowlock_permit_waiter drop column waits_until;
alter table rowlock_waiter drop column waits_until;
