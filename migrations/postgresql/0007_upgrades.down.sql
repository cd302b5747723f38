-- An upgrade is a hold like any other from then on.
alter table rowlock_permit_waiter drop column base, drop column kind;
alter table rowlock_permit drop column base, drop column kind;
