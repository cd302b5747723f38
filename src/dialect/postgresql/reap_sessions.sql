-- Ends expired sessions, a batch. Skips rows that a heartbeat or another reaper holds.
-- $1 batch
with k as materialized (
         select id from rowlock_session
          where not ended and expires_at <= clock_timestamp()
          order by id limit $1::bigint for update skip locked),
     c as materialized (
         select id, clock_timestamp() as now from k)
update rowlock_session m set ended = true
  from c where m.id = c.id and not m.ended and m.expires_at <= c.now
