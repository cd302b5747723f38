-- statement fence
-- Makes the caller's transaction the writer if a lease still has this grant, and renews its session: one
-- row changed. There is one writer, so what the subquery sees stays true until the commit; a transaction
-- whose snapshot is older than the last commit cannot write at all (BUSY_SNAPSHOT). Heartbeats wait
-- meanwhile, so the session must not expire on the way: it gets a whole ttl here, if we commit. An expired
-- session is not revived.
-- $1 name  $2 session  $3 token
update rowlock_session
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $2 and ended = 0 and expires_at > {now}
   and exists (select 1 from rowlock_lock l
                where l.name = $1 and l.session = $2 and l.token = $3
                  and coalesce(l.deadline > {now}, 1))

-- statement release_on_commit
-- Frees a lease in the caller's transaction if it still has this grant: one row changed. There is one
-- writer: no client takes the lease before our commit, and a rollback leaves it ours.
-- $1 name  $2 session  $3 token  $4 grant id
update rowlock_lock
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = {now}
 where name = $1 and session = $2 and token = $3 and grant_id = $4
   and coalesce(deadline > {now}, 1)
   and exists (select 1 from rowlock_session s
                where s.id = $2 and s.ended = 0 and s.expires_at > {now})

-- statement fence_permits
-- The fence of a hold of permits, for the reasons of fence.
-- $1 name  $2 session  $3 grant id
update rowlock_session
   set beats = beats + 1, expires_at = {now} + ttl_us
 where id = $2 and ended = 0 and expires_at > {now}
   and exists (select 1 from rowlock_hold l
                where l.name = $1 and l.session = $2 and l.grant_id = $3
                  and coalesce(l.deadline > {now}, 1))
