-- statement row_table
-- What the catalog says of a table whose rows are to be locked: rows (what, a, b, c).
--   table   its type; its storage engine (InnoDB alone has row locks)
--   column  name; type, with its length and sign; character set and collation, if it holds text
--   key     a unique index; one of its columns, NULL for an expression; length of a prefix, if any.
--           Not of HASH type, which MariaDB uses for long values and cannot look up by.
-- A plain read of the catalog. An index that is dropped right after makes the lock's statement fail,
-- because it names the index.
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

-- statement insert_resource
-- Makes the row that stands for a resource, if it is missing. ON DUPLICATE KEY takes the exclusive
-- lock of a row that is there at once: INSERT IGNORE would take a shared one, and two sessions that
-- both have it would deadlock over the exclusive one. Who waits is ended by the statement's own time
-- limit, which is put in front. Version 0: never written.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 0, {now}, {now})
    on duplicate key update resource = values(resource)

-- statement column_types
-- The types of a table's columns. Types of columns change by ALTER TABLE alone.
-- $1 its database, null = the session's  $2 the table
select column_name, data_type, column_type, datetime_precision
  from information_schema.columns
 where table_schema = coalesce($1, database()) and table_name = $2
