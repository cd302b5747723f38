-- The declared types of a table's columns. Types of columns change by ALTER TABLE alone.
-- $1 its schema, null = found as in the statements to come  $2 the table
select name, lower(type), '', null from pragma_table_info($2, $1)
