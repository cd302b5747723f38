-- How a session is woken. What is told to it outside the tables carries a proof made with its secret, so
-- that only those who can read this row can make it believe anything (docs/adr/0032). Each column by
-- itself: only so a migration that was cut off can be repeated.
--   wake_address  random: names its mailbox, and tells nothing else
--   wake_secret   128 random bits in hexadecimal; never sent
--   mailbox       the network namespace in which its mailbox lies; null = it has none
alter table rowlock_session add column wake_address bigint not null default 0;
alter table rowlock_session add column wake_secret varchar(32) not null default '';
alter table rowlock_session add column mailbox bigint null;
