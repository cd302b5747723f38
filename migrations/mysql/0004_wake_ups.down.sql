alter table rowlock_session drop column wake_address;
alter table rowlock_session drop column wake_secret;
alter table rowlock_session drop column mailbox;
