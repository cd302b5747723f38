-- Releases a lease if it is still this very grant, straight to the first live waiter that this
-- statement's snapshot shows, with the proof of grant_next; to nobody if it shows none. A ticket that
-- commits behind the snapshot is not seen: who releases to nobody looks for waiters afterwards.
--
-- `mine` locks the row first; only then is a ticket looked for, locked and judged. A lease that is not
-- this grant any more: `mine` is empty, and with it the bound of the tickets, so none is touched.
-- Nobody waits: the commit is asynchronous, as that of release.sql and for its reason. Given on: it is
-- durable, as every grant's, and notifies the waiter's session; nobody else is told.
-- `seen` is of the snapshot, `served` of the locked row: a mark that was set back in between (rewind.sql)
-- stays.
-- If the row promises its next token to a waiter who can be served, that is the one; to any other waiter
-- goes a token beyond (pass_on.sql tells why).
-- $1 name  $2 my session  $3 grant id  $4 1 = may commit asynchronously when nobody is served
-- → 1 if it was freed or given on; the waiter's session, grant id, token, or NULL
with mine as materialized (
         select (select b.served from rowlock_lease b where b.name = $1::text) as seen, l.served,
                {heir} as heir
           from rowlock_lease l
          where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
            for update of l),
     c as materialized (
         select w.name, w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
                m.wake_address, m.wake_secret
           from rowlock_waiter w join rowlock_session m on m.id = w.session
          where w.name = $1::text and w.ticket > (select coalesce(mine.seen, 0) - 256 from mine)
            and w.grant_id = coalesce((select mine.heir from mine), w.grant_id) and {live}
          order by w.ticket limit 1 for update of w),
     d as (
         delete from rowlock_waiter w using c where w.name = c.name and w.ticket = c.ticket),
     u as (
         update rowlock_lease as l
            set token = case when c.ticket is null then l.token
                             else greatest(l.token,
                                           (select o.floor from rowlock_token_floor o)) + 1
                                  + (coalesce(l.successor, c.grant_id) <> c.grant_id)::int end,
                successor = case when c.ticket is null then l.successor end,
                session = c.session, grant_id = c.grant_id, thread = c.thread, note = c.note,
                acquired_at = case when c.ticket is not null then clock_timestamp() end,
                changed_at = clock_timestamp(),
                served = case when mine.served < mine.seen then mine.served else coalesce(c.ticket, l.served) end,
                deadline = clock_timestamp() + c.deadline_us::float8 * interval '1 microsecond'
           from mine left join c on true
          where l.name = $1::text
         returning l.name, l.session, l.grant_id, l.token)
select (u.name is not null)::int, u.session, u.grant_id, u.token,
       case when u.session is not null
            then (select pg_notify('rowlock_' || t.wake_address::text, {said})::text
                    from (select c.wake_address, c.wake_secret,
                                 u.grant_id::text || ' ' || u.token::text || ' 0' as words from c) t)
            when $4::int = 1 then set_config('synchronous_commit', 'off', true) end
  from (values (1)) as one left join u on true
