-- Has looks into a queue begin with this ticket, which was overtaken: see fragment in_line. It waits for
-- the lease's row as grant_next does; who could not have it tries again.
-- $1 name  $2 ticket
update rowlock_lease set served = $2::bigint where name = $1::text and served > $2::bigint
