-- An upgrade is a hold like any other from then on.
alter table rowlock_permit drop column kind;
alter table rowlock_permit drop column base;
alter table rowlock_permit drop column requested;
alter table rowlock_permit_waiter drop column kind;
alter table rowlock_permit_waiter drop column base;
alter table rowlock_permit_waiter drop column blocks;
alter table rowlock_waiter drop column blocks;
