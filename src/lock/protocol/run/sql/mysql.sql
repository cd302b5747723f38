-- statement run_record
-- Reads what is known of the runs of a name, and locks the row: what a run
-- before this one reports at this moment is either seen, or comes after the record of our beginning, which has
-- another token.
-- $1 name  $2 how recently a run may have ended, in µs, or NULL
-- → token of the latest run, whether it finished, the greatest period, what is left of its rest in µs (≤ 0 or
--   NULL: none), whether a run ended so recently
select r.token, r.finished, r.period, {until(r.not_before)}, coalesce(r.ended_at > {now} - $2, 0)
  from rowlock_run r where r.name = $1 for update

-- statement begin_run
-- Records that a run begins. The transaction has locked the lease's row (lock_lease): no other client holds it.
-- The period and the end of earlier runs stay.
-- $1 name  $2 token  $3 the rest from now on in µs; 0: none
insert into rowlock_run (name, token, began_at, finished, not_before)
values ($1, $2, {now}, 0, case when $3 > 0 then {now} + $3 end)
on duplicate key update
   token = values(token), began_at = values(began_at), finished = 0, not_before = values(not_before)
