-- statement run_record
-- Reads what is known of the runs of a name. The transaction has the file's write lock.
-- $1 name  $2 how recently a run may have ended, in µs, or NULL
-- → token of the latest run, whether it finished, the greatest period, what is left of its rest in µs (≤ 0 or
--   NULL: none), whether a run ended so recently
select r.token, r.finished, r.period, {until(r.not_before)}, coalesce(r.ended_at > {now} - $2, 0)
  from rowlock_run r where r.name = $1

-- statement begin_run
-- Records that a run begins. The period and the end of earlier runs stay.
-- $1 name  $2 token  $3 the rest from now on in µs; 0: none
insert into rowlock_run (name, token, began_at, finished, not_before)
values ($1, $2, {now}, 0, case when $3 > 0 then {now} + $3 end)
on conflict (name) do update
   set token = excluded.token, began_at = excluded.began_at, finished = 0, not_before = excluded.not_before
