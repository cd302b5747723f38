-- A holder that is asked for its lock within some time learns who asks, and why. The time is the deadline of the hold.
--   asked_for  of a lease: grant id of the hold whose release was asked for; those of another grant mean nothing
--   asked_by   who asks, for people
--   reason     why, for people
alter table rowlock_lease add column asked_for bigint;
alter table rowlock_lease add column asked_by varchar(1000);
alter table rowlock_lease add column reason varchar(1000);
alter table rowlock_permit add column asked_by varchar(1000);
alter table rowlock_permit add column reason varchar(1000);
