-- The record says which libraries can work on the tables that a migration leaves. Later migrations name one in a line
-- of their text, like this one:
-- oldest library: 16
--   oldest_library  the latest migration that a library has to know; null = the one of the row
alter table rowlock_migration add column oldest_library integer;
