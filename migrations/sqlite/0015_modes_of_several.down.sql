-- No client of the version before may serve such an entry alone.
delete from rowlock_permit_waiter where members > 1;
alter table rowlock_permit_waiter drop column members;
