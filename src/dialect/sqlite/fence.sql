-- Makes the caller's transaction the writer if a lease is still this grant, and renews its session:
-- one row changed. There is one writer, so what the subquery sees is what is, until the commit; a
-- transaction whose snapshot is older than the last commit cannot write at all (BUSY_SNAPSHOT).
-- Heartbeats wait meanwhile, so the session must not expire on the way: it gets a whole ttl here, if
-- we commit. An expired session is not revived.
-- $1 name  $2 session  $3 token
update rowlock_session
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $2 and ended = 0 and expires_at > {now}
   and exists (select 1 from rowlock_lease l
                where l.name = $1 and l.session = $2 and l.token = $3
                  and coalesce(l.deadline > {now}, 1))
