-- The types of a table's columns, behind one layer of domains. The catalog tells what is committed
-- and what this transaction made; types of columns change by ALTER TABLE alone.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 the table, quoted and perhaps qualified, found by the search path as in the statements to come
-- → name, type, '', modifier, the schema, quoted, of the operator that compares its values
select a.attname, coalesce(b.typname, t.typname), '',
       case when t.typtype operator(pg_catalog.=) 'd' then t.typtypmod else a.atttypmod end,
       {equality}
  from pg_catalog.pg_attribute a
  join pg_catalog.pg_type t on t.oid operator(pg_catalog.=) a.atttypid
  left join pg_catalog.pg_type b on t.typtype operator(pg_catalog.=) 'd'
                                and b.oid operator(pg_catalog.=) t.typbasetype
 where a.attrelid operator(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)
   and a.attnum operator(pg_catalog.>) 0 and not a.attisdropped
