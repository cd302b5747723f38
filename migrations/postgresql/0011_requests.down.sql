-- A client of the version before takes a request with a time for one without.
alter table rowlock_permit drop column reason;
alter table rowlock_permit drop column asked_by;
alter table rowlock_lease drop column reason;
alter table rowlock_lease drop column asked_by;
alter table rowlock_lease drop column asked_for;
