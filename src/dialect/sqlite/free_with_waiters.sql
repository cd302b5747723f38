-- Names that are free and have a live waiter, a batch: for the reaper, which keeps a queue moving if
-- everybody who should have looked is gone. Reads only.
-- $1 after which name  $2 batch
select distinct w.name
  from rowlock_waiter w
       join rowlock_session m on m.id = w.session
       left join rowlock_lease l on l.name = w.name
       left join rowlock_session s on s.id = l.session
 where w.name > $1 and {live} and {free}
 order by w.name limit $2
