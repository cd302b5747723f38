-- The name that stands so many rows behind another; no row if there are not so many.
-- $1 name  $2 how many, from 1
select l.name from rowlock_lease l where l.name > $1 order by l.name limit 1 offset $2 - 1
