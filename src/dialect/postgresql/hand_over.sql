-- Releases a lease if it is still this very grant, straight to the first live waiter that this
-- statement's snapshot shows, with the proof of grant_next; to nobody if it shows none. A ticket that
-- commits behind the snapshot is not seen: who releases to nobody looks for waiters afterwards.
--
-- Nobody waits: one UPDATE, as release.sql, with its asynchronous commit and the reason for it. Given
-- on: the commit is durable, as every grant's, and notifies the waiter's session; nobody else is told.
-- A lease that is not this grant any more: `mine` and u both fail to match, by the same columns of the
-- same row, so no ticket is touched.
-- $1 name  $2 my session  $3 grant id  $4 1 = may commit asynchronously when nobody is served
-- → 1 if it was freed or given on; the waiter's session, grant id, token, or NULL
with waited as materialized (
         select w.name, (select b.served from rowlock_lease b where b.name = $1::text) as served
           from rowlock_waiter w join rowlock_session m on m.id = w.session
          where {in_line} and {live} limit 1),
     mine as materialized (
         select case when l.served < waited.served then l.served end as rewound
           from waited join rowlock_lease l on l.name = waited.name
          where l.session = $2::bigint and l.grant_id = $3::bigint
            for update of l),
     c as materialized (
         select w.name, w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us,
                (select mine.rewound from mine) as rewound
           from rowlock_waiter w join rowlock_session m on m.id = w.session
          where exists (select from mine) and {in_line} and {live}
          order by w.ticket limit 1 for update of w),
     d as (
         delete from rowlock_waiter w using c where w.name = c.name and w.ticket = c.ticket),
     u as (
         update rowlock_lease as l
            set token = case when c.ticket is null then l.token
                             else greatest(l.token,
                                           (select o.floor from rowlock_token_floor o)) + 1 end,
                session = c.session, grant_id = c.grant_id, thread = c.thread, note = c.note,
                acquired_at = case when c.ticket is not null then clock_timestamp() end,
                changed_at = clock_timestamp(), served = coalesce(c.rewound, c.ticket, l.served),
                deadline = clock_timestamp() + c.deadline_us * interval '1 microsecond'
           from (values (1)) as one left join c on true
          where l.name = $1::text and l.session = $2::bigint and l.grant_id = $3::bigint
         returning l.session, l.grant_id, l.token),
     n as materialized (
         select pg_notify('rowlock_' || u.session, u.grant_id || ' ' || u.token)
           from u where u.session is not null)
select (select count(*) from u), u.session, u.grant_id, u.token, (select count(*) from n),
       case when u.session is null and $4::int = 1
            then set_config('synchronous_commit', 'off', true) end
  from (values (1)) as one left join u on true
