-- Runs of work that is to be done once a period, or not too often. The lease of the same name makes them exclusive; one row
-- for each name, which stays.
--   name        of the lease
--   token       of the lease under which the latest run began: that run alone may end it
--   began_at    of the latest run
--   finished    0: the latest run has not reported that it finished
--   period      the greatest that a finished run had, compared byte by byte; null: none had any
--   ended_at    when a run finished last; null: none has
--   not_before  no run begins before that, whatever became of the latest; null: it may
create table rowlock_run (
    name text primary key not null,
    token integer not null,
    began_at integer not null,
    finished integer not null default 0,
    period text,
    ended_at integer,
    not_before integer
) without rowid;
