-- The types of a table's columns, behind one layer of domains. The catalog tells what is committed
-- and what this transaction made; types of columns change by ALTER TABLE alone.
-- $1 the table, quoted and perhaps qualified, found by the search path as in the statements to come
select a.attname, coalesce(b.typname, t.typname), '',
       case when t.typtype = 'd' then t.typtypmod else a.atttypmod end
  from pg_catalog.pg_attribute a
  join pg_catalog.pg_type t on t.oid = a.atttypid
  left join pg_catalog.pg_type b on t.typtype = 'd' and b.oid = t.typbasetype
 where a.attrelid = pg_catalog.to_regclass($1) and a.attnum > 0 and not a.attisdropped
