-- The record of migrations. The migrator makes this table before the first migration. No migration
-- describes it, so this file is not recorded itself and never changes.
--   version         1, 2, 3 and so on, without gaps
--   name            the middle of the file name, for display
--   checksum        64-bit FNV-1a of the .up.sql file, in hexadecimal
--   applied_at      for display
--   oldest_library  the latest migration that a library has to know to work on the tables that this one
--                   leaves, if its text has a line "-- oldest library: N"; null = this one
create table if not exists rowlock_migration (
    version integer primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null,
    oldest_library integer
);
