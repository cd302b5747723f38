-- Whether there is a history that this user may read and shorten: the catalog shows no other tables. Who
-- may read only is found out by the deletion that fails.
-- $1 the table's name
-- → 1 or 0
select count(*) from information_schema.tables where table_schema = database() and table_name = $1
