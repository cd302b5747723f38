-- Deletes sessions that are ended and were seen to be referenced by nothing since. An acquire that was
-- in flight when its session ended may still write the id afterwards: a lease whose session is missing
-- is free. Rows that somebody has locked, another reaper, are left alone.
-- $1 ids, as {1,2,3}
with k as materialized (
         select m.id from rowlock_session m
          where m.id = any ($1::text::bigint[]) and m.ended
          order by m.id for update skip locked)
delete from rowlock_session m using k where m.id = k.id
