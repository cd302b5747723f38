alter table rowlock_migration drop column oldest_library;
