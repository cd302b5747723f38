-- MariaDB only. Grants leases that a look (probe_all) found free, by one statement and one commit. A row
-- that was changed since does not match; if fewer rows were changed than asked for, served_of tells
-- which. The argument is take's, for each row by itself: the token is compared in the row's latest
-- version, under its lock, and every grant changes it.
--
-- It waits for no row: if somebody has one of them locked all is undone (1205), and those that are not
-- locked are found by lock_all.
-- $1 session  $2 the floor that was seen  $3 … $18 names  $19 … $34 their probed tokens
-- $35 … $50 grant ids  $51 … $66 threads  $67 … $82 notes  $83 … $98 own deadlines in µs, or NULL
-- Fewer than sixteen repeat the first.
set statement innodb_lock_wait_timeout = 0 for
{take_all}
