-- Lets a lease end when its session would without another heartbeat, unless it ends before that. Never
-- later: a lease that was judged free stays free. The transaction has locked the lease's row, and then
-- the session's by bump_revision: a heartbeat either came before that, and its expires_at is read here, or is
-- refused until its client knows the new revision, which it takes over only after it has read this deadline.
-- No row: the lease ends earlier than that.
-- $1 name  $2 session
update rowlock_lease l
   set deadline = m.expires_at
  from rowlock_session m
 where l.name = $1::text and m.id = $2::bigint
   and (l.deadline is null or l.deadline > m.expires_at)
