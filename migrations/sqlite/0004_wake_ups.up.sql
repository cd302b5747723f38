-- How a session is woken. What is told to it outside the tables carries a proof made with its secret, so
-- that only those who can read this row can make it look (docs/adr/0032).
--   wake_address  random: names its mailbox, and tells nothing else
--   wake_secret   128 random bits in hexadecimal; never sent
--   mailbox       the network namespace in which its mailbox lies; null = it has none
alter table rowlock_session add column wake_address integer not null default 0;
alter table rowlock_session add column wake_secret text not null default '';
alter table rowlock_session add column mailbox integer;
