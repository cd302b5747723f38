-- statement row_table
-- The schema's description of a table whose rows are to be locked: rows (what, a, b, c).
--   table   table or view, as far as main and temp know
--   column  name
--   key     a unique index, or `primary` for the primary key; one of its columns, NULL for an
--           expression. Partial indexes are left out.
-- The whole file is locked in any case: this only serves to find one row.
-- $1 the schema of an attached file, or NULL for the one that has the table  $2 the table
select 'table' as what,
       coalesce((select type from sqlite_temp_master where name = $2 collate nocase
                    and type in ('table', 'view') and coalesce($1, 'temp') = 'temp'),
                (select type from sqlite_master where name = $2 collate nocase
                    and type in ('table', 'view') and coalesce($1, 'main') = 'main'),
                'table') as a, '' as b, '' as c
 where exists (select 1 from pragma_table_info($2, $1))
union all
select 'column', name, '', '' from pragma_table_info($2, $1)
union all
select 'key', 'primary', name, '' from pragma_table_info($2, $1) where pk > 0
union all
select 'key', l.name, i.name, ''
  from pragma_index_list($2, $1) l, pragma_index_info(l.name, $1) i
 where l."unique" = 1 and l.partial = 0

-- statement insert_resource
-- Creates the row that represents a resource if it is missing. This transaction already holds the file's
-- write lock, so no other connection can insert it. Version 0: never written.
-- $1 resource
insert into rowlock_version (resource, version, created_at, updated_at)
values ($1, 0, {now}, {now})
    on conflict (resource) do nothing

-- statement column_types
-- The declared types of a table's columns. Only ALTER TABLE changes them.
-- $1 its schema, null = found as in the statements to come  $2 the table
select name, lower(type), '', null from pragma_table_info($2, $1)
