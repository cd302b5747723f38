-- The types of a table's columns. Types of columns change by ALTER TABLE alone.
-- $1 its database, null = the session's  $2 the table
select column_name, data_type, column_type, datetime_precision
  from information_schema.columns
 where table_schema = coalesce($1, database()) and table_name = $2
