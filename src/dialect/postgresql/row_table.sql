-- What the catalog says of a table whose rows are to be locked: rows (what, a, b, c).
--   table   its relkind; whether tables inherit from it (their rows are no part of its indexes)
--   column  name; the schema, quoted, of the operator that compares its values
--   key     a unique index; one of its columns. Not if it is invalid, of expressions, of some rows
--           only, or if it takes for different what the column takes for equal: by another collation
--           than the column's, where that is not deterministic. (to_json, since PostgreSQL 11 has no
--           such collations.) A deferrable one is as good: what is committed is unique.
-- A plain read of the catalog: it locks nothing of the table. An index that is dropped right after
-- costs precision, not exclusion: PostgreSQL locks the rows that match, and no others.
-- Runs in the caller's transaction, whose search path may be any: fence.sql.
-- $1 the table, quoted, found by the search path if it has no schema
with found as (select c.oid, c.relkind from pg_catalog.pg_class c
                where c.oid operator(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text))
select 'table', f.relkind::pg_catalog.text,
       case when f.relkind operator(pg_catalog.=) 'r'
             and exists (select from pg_catalog.pg_inherits h
                          where h.inhparent operator(pg_catalog.=) f.oid) then '1' else '0' end, ''
  from found f
union all
select 'column', a.attname::pg_catalog.text, {equality}, ''
  from found f join pg_catalog.pg_attribute a on a.attrelid operator(pg_catalog.=) f.oid
 where not a.attisdropped
union all
select 'key', i.indexrelid::pg_catalog.text, a.attname::pg_catalog.text, ''
  from found f
  join pg_catalog.pg_index i on i.indrelid operator(pg_catalog.=) f.oid
  join lateral pg_catalog.unnest(i.indkey) with ordinality k (attnum, place)
    on k.place operator(pg_catalog.<=) i.indnkeyatts
  join pg_catalog.pg_attribute a on a.attrelid operator(pg_catalog.=) f.oid
                                and a.attnum operator(pg_catalog.=) k.attnum
 where i.indisunique and i.indisvalid and i.indisready
   and i.indpred is null and i.indexprs is null
   and not exists (select from rows from (pg_catalog.unnest(i.indkey),
                                          pg_catalog.unnest(i.indcollation)) p (attnum, compares)
                     join pg_catalog.pg_attribute o on o.attrelid operator(pg_catalog.=) f.oid
                                                   and o.attnum operator(pg_catalog.=) p.attnum
                     join pg_catalog.pg_collation l on l.oid operator(pg_catalog.=) o.attcollation
                    where p.compares operator(pg_catalog.<>) 0::pg_catalog.oid
                      and p.compares operator(pg_catalog.<>) o.attcollation
                      and pg_catalog.to_json(l) operator(pg_catalog.->>) 'collisdeterministic'
                          operator(pg_catalog.=) 'false')
