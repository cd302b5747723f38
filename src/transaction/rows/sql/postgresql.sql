-- statement row_table
-- The catalog's description of a table whose rows are to be locked: rows (what, a, b, c).
--   table   its relkind; whether tables inherit from it (its indexes do not cover their rows)
--   column  name; the schema, quoted, of the operator that compares its values
--   key     a unique index; one of its columns. Left out if it is invalid, partial or on
--           expressions, or if it distinguishes values that the column treats as equal: its collation
--           differs from the column's, which is not deterministic. (to_json, since PostgreSQL 11 has no
--           such collations.) A deferrable one will do: committed rows are unique.
-- A plain read of the catalog: it does not lock the table. Dropping an index right after it costs
-- precision, not exclusion: PostgreSQL locks the rows that match and no others.
-- Runs in the caller's transaction, under any search path: see the statement fence.
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

-- statement row_session_setup
-- Limits of a row session, set for this transaction only: a pooler may give the server connection to
-- another client afterwards. A shorter limit set by the administrator stays.
-- idle_in_transaction_session_timeout ends a client that hangs, statement_timeout a statement whose client
-- has gone, and transaction_timeout (since PostgreSQL 17) the whole transaction.
-- The driver must hear the warning that no standby confirmed the commit.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- $1 max_hold in ms  $2 lock timeout in ms for the caller's own statements
select pg_catalog.set_config('idle_in_transaction_session_timeout',
                  case when pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval
                             operator(pg_catalog.>=) interval '1 ms'
                        and pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval
                             operator(pg_catalog.<=) ($1::bigint operator(pg_catalog.*) interval '1 ms')
                       then pg_catalog.current_setting('idle_in_transaction_session_timeout')
                       else $1::bigint::pg_catalog.text end, true),
       pg_catalog.set_config('statement_timeout',
                  case when pg_catalog.current_setting('statement_timeout')::interval
                             operator(pg_catalog.>=) interval '1 ms'
                        and pg_catalog.current_setting('statement_timeout')::interval
                             operator(pg_catalog.<=) ($1::bigint operator(pg_catalog.*) interval '1 ms')
                       then pg_catalog.current_setting('statement_timeout') else $1::bigint::pg_catalog.text end, true),
       case when pg_catalog.current_setting('transaction_timeout', true) is not null
            then pg_catalog.set_config('transaction_timeout',
                            case when pg_catalog.current_setting('transaction_timeout', true)::interval
                             operator(pg_catalog.>=) interval '1 ms'
                        and pg_catalog.current_setting('transaction_timeout', true)::interval
                             operator(pg_catalog.<=) ($1::bigint operator(pg_catalog.*) interval '1 ms')
                                 then pg_catalog.current_setting('transaction_timeout', true)
                                 else $1::bigint::pg_catalog.text end, true) end,
       pg_catalog.set_config('lock_timeout', $2::pg_catalog.text, true),
       case when pg_catalog.current_setting('client_min_messages') operator(pg_catalog.=) 'error'
            then pg_catalog.set_config('client_min_messages', 'warning', true) end

-- statement insert_resource
-- Creates the row that represents a resource if it is missing. If another transaction is creating it, this
-- one waits, up to the lock timeout. The statement sets that timeout itself; the server reads it when the
-- wait begins, after the SELECT has yielded its row. If the other transaction commits, nothing is inserted
-- and the row is there to be locked; if it rolls back, our row is inserted, and locked by being
-- uncommitted. Version 0: never written.
-- Runs in the caller's transaction, under any search path: see the statement fence.
-- $1 resource  $2 lock timeout in ms
with waiting as materialized (select pg_catalog.set_config('lock_timeout', $2::pg_catalog.text, true))
insert into rowlock_version (resource, version, created_at, updated_at)
select $1::pg_catalog.text, 0, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() from waiting
    on conflict (resource) do nothing

-- statement column_types
-- The types of a table's columns, seen through one layer of domains. The catalog shows what is committed
-- and what this transaction made; only ALTER TABLE changes a column's type.
-- Runs in the caller's transaction, under any search path: see the statement fence.
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
