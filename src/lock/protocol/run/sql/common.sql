-- statement defer_run
-- The latest run did not finish: no other begins for a while. Its record counts as finished, so that the next
-- does. The transaction has locked the lease's row.
-- $1 name  $2 how long, in µs
update rowlock_run
   set finished = 1, not_before = {greatest}(coalesce(not_before, 0), {now} + $2)
 where name = $1

-- statement finish_run
-- Records that the run which began under this token has finished, unless another began since or the lease is not this
-- grant any more: a forced release that was committed before this statement is seen, one that comes later comes after the
-- end of the run. Locks no lease. Repeatable: the lease may have gone since the first of them, which has set finished and
-- ended_at (begin_run clears the one, defer_run leaves the other; an earlier run may have ended at our beginning).
-- $1 name  $2 token  $3 its period, or NULL  $4 my session
update rowlock_run
   set finished = 1, ended_at = {now}, period = coalesce($3, period)
 where name = $1 and token = $2
   and (finished = 1 and ended_at >= began_at
        or (select 1 from rowlock_lock l where l.name = $1 and l.token = $2 and l.session = $4) = 1)

-- statement show_run
-- What is known of the runs of a name, for people. Reads only.
-- $1 name
-- → token of the latest run, whether it finished, the greatest period or NULL, µs since it began, µs since a run
--   finished or NULL, what is left of its rest in µs (≤ 0 or NULL: none)
select r.token, r.finished, r.period, {since(r.began_at)}, {since(r.ended_at)}, {until(r.not_before)}
  from rowlock_run r where r.name = $1
