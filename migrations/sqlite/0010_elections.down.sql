alter table rowlock_lease drop column heir;
alter table rowlock_waiter drop column priority;
