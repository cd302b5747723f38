-- Whether there is a history that this user may read and shorten.
-- $1 the table's name, with its schema if it has one
-- → 1 or 0
select coalesce(pg_catalog.has_table_privilege(to_regclass($1::text), 'select')
                and pg_catalog.has_table_privilege(to_regclass($1::text), 'delete'), false)::int
