-- What a client sends soon after it was told of a grant, while the lease is held: whether the table says
-- so too, and who comes next, so that the release finds it prepared (pass_on.sql). It neither writes nor
-- locks the lease's row: fences and releases do not meet it.
--
-- A grant whose commit was asynchronous ($4), and a promise that the row makes, become durable by it: some
-- row must change for the commit to wait for the disk, and what was committed before lies before it in
-- the log. One's own session's row is nobody else's: only its heartbeat and those who end it meet this
-- for the time of a commit, and what it is judged by (expires_at, ended) is not written. Without that row
-- nothing was made durable, and no promise is told.
--
-- The waiter to whom the next token is promised comes first, if it can be served; then the first two of
-- the line, of whom one may be the same.
-- $1 name  $2 my session  $3 grant id  $4 1 = make it durable
-- → no row: it is not this grant. Else token, what is left of its own deadline in µs, where looks into
--   the queue begin, the promise; a waiter: ticket, session, grant id, thread, note, own deadline in µs,
--   what is left of its session in µs, its wake-up address, secret and mailbox, or NULLs
with mine as materialized (
         select l.name, l.token, l.deadline, l.served, l.successor from rowlock_lease l
          where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint),
     durable as (
         update rowlock_session s set beats = s.beats + 1
           from mine where s.id = $2::bigint and ($4::int = 1 or mine.successor is not null)
        returning s.id),
     next as (
         (select w.*, m.expires_at, m.wake_address, m.wake_secret, m.mailbox
            from mine join rowlock_waiter w on w.grant_id = mine.successor
                 join rowlock_session m on m.id = w.session
           where {live})
         union all
         (select w.*, m.expires_at, m.wake_address, m.wake_secret, m.mailbox
            from rowlock_waiter w join rowlock_session m on m.id = w.session
           where w.name = $1::text and w.ticket > (select coalesce(mine.served, 0) - 256 from mine)
             and {live}
           order by w.ticket limit 2))
select mine.token, (extract(epoch from mine.deadline - clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint,
       mine.served, case when exists (select from durable) then mine.successor end,
       next.ticket, next.session, next.grant_id, next.thread, next.note, next.deadline_us,
       (extract(epoch from next.expires_at - clock_timestamp()) operator(pg_catalog.*) 1000000)::bigint,
       next.wake_address, next.wake_secret, next.mailbox
  from mine left join next on true
