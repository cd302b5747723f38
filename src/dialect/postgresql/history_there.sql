-- Whether there is a history that this user may read and shorten.
-- $1 the table's name, with its schema if it has one
-- → 1 or 0
select coalesce(has_table_privilege(to_regclass($1::text), 'select')
                and has_table_privilege(to_regclass($1::text), 'delete'), false)::int
