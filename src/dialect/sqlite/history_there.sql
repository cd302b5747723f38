-- Whether there is a history.
-- $1 the table's name
-- → 1 or 0
select count(*) from sqlite_master where type = 'table' and name = $1
