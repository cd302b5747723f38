-- statement begin_run
-- Records that a run begins. The transaction has locked the lease's row (lock_lease): no other client holds it.
-- The period and the end of earlier runs stay.
-- $1 name  $2 token  $3 the rest from now on in µs; 0: none
insert into rowlock_run (name, token, began_at, finished, not_before)
values ($1, $2, {now}, 0, case when $3 > 0 then {now} + $3 end)
on duplicate key update
   token = values(token), began_at = values(began_at), finished = 0, not_before = values(not_before)
