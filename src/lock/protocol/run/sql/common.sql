-- statement defer_run
-- The latest run did not finish: no other begins for a while. Its record counts as finished, so that the next
-- does. The transaction has locked the lease's row.
-- $1 name  $2 how long, in µs
update rowlock_run
   set finished = 1, not_before = {greatest}(coalesce(not_before, {epoch}), {now} + {span($2)})
 where name = $1::text

-- statement finish_run
-- Records that the run which began under this token has finished, unless another began since or the lease is not this
-- grant any more: a forced release that was committed before this statement is seen, one that comes later comes after the
-- end of the run. Locks no lease. Repeatable: the lease may have gone since the first of them, which has set finished and
-- ended_at (begin_run clears the one, defer_run leaves the other; an earlier run may have ended at our beginning).
-- $1 name  $2 token  $3 its period, or NULL  $4 my session
update rowlock_run
   set finished = 1, ended_at = {now}, period = coalesce($3::text, period)
 where name = $1::text and token = $2::bigint
   and (finished = 1 and ended_at >= began_at
        or (select 1 from rowlock_lock l
             where l.name = $1::text and l.token = $2::bigint and l.session = $4::bigint) = 1)

-- statement show_run
-- What is known of the runs of a name, for people. Reads only.
-- $1 name
-- → token of the latest run, whether it finished, the greatest period or NULL, µs since it began, µs since a run
--   finished or NULL, what is left of its rest in µs (≤ 0 or NULL: none)
select r.token, r.finished, r.period,
       {since(r.began_at)},
       {since(r.ended_at)},
       {until(r.not_before)}
  from rowlock_run r where r.name = $1::text

-- statement begin_run
-- Records that a run begins. The transaction has locked the lease's row (lock_lease): no other client holds it.
-- The period and the end of earlier runs stay.
-- $1 name  $2 token  $3 the rest from now on in µs; 0: none
insert into rowlock_run (name, token, began_at, finished, not_before)
values ($1::text, $2::bigint, {now}, 0, case when $3::bigint > 0 then {now} + {span($3)} end)
on conflict (name) do update
   set token = excluded.token, began_at = excluded.began_at, finished = 0, not_before = excluded.not_before

-- statement run_record
-- Reads what is known of the runs of a name, and locks the row: what a run
-- before this one reports at this moment is either seen, or comes after the record of our beginning, which has
-- another token.
-- $1 name  $2 how recently a run may have ended, in µs, or NULL
-- → token of the latest run, whether it finished, the greatest period, what is left of its rest in µs (≤ 0 or
--   NULL: none), whether a run ended so recently
select r.token, r.finished, r.period, {until(r.not_before)},
       coalesce(r.ended_at > {now} - {span($2)}, false)::int
  from rowlock_run r where r.name = $1::text {for_update}
