-- statement row_table
-- The catalog's description of a table whose rows are to be locked: rows (what, a, b, c).
--   table   its type; its storage engine (InnoDB alone has row locks)
--   column  name; type, with its length and sign; character set and collation, if it holds text
--   key     a unique index; one of its columns, NULL for an expression; length of a prefix, if any.
--           HASH indexes are left out: MariaDB uses them for long values and cannot look up by them.
-- A plain read of the catalog. If an index is dropped right after it, the locking statement fails, because
-- it names the index. LIMIT, here and below, overrides a sql_select_limit of the caller's.
-- $1 the schema, or NULL for the current database  $2 the table
select 'table' as what, table_type as a, engine as b, null as c
  from information_schema.tables
 where table_schema = coalesce($1, database()) and table_name = $2
union all
select 'column', column_name, column_type, concat(character_set_name, ' ', collation_name)
  from information_schema.columns
 where table_schema = coalesce($1, database()) and table_name = $2
union all
select 'key', index_name, column_name, sub_part
  from information_schema.statistics
 where table_schema = coalesce($1, database()) and table_name = $2
   and non_unique = 0 and index_type = 'BTREE'
 limit 1000000

-- statement insert_resource
-- Creates the row that represents a resource if it is missing. ON DUPLICATE KEY takes an existing row's
-- exclusive lock at once; INSERT IGNORE would take a shared lock, and two sessions that both hold it would
-- deadlock over the exclusive one. On MariaDB a time limit put in front of the statement ends the wait.
-- Version 0: never written.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 0, {now}, {now})
    on duplicate key update resource = values(resource)

-- statement column_types
-- The types of a table's columns. Only ALTER TABLE changes them.
-- $1 its database, null = the session's  $2 the table
select column_name, data_type, column_type, datetime_precision
  from information_schema.columns
 where table_schema = coalesce($1, database()) and table_name = $2
 limit 1000000
