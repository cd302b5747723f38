-- An upgrade is a hold like any other from then on.
alter table rowlock_permit drop column kind, drop column base, drop column requested;
alter table rowlock_permit_waiter drop column kind, drop column base, drop column blocks;
alter table rowlock_waiter drop column blocks;
