-- statement overdue_leases
-- A batch of leases that are held for longer than the policy of their name allows, and whose release was not asked for at
-- once: asked_by is NULL then, as adopt_lease and renew_lease judge it. For the reaper, which asks for each
-- (lease_protocol::request_release). One snapshot by the database's clock; reads only, and locks nothing.
-- From the few policies to their leases by primary key: the other leases are not read.
-- A release, a renewal, an adoption or another grant that commits after this has changed the token: the request compares
-- it, and does nothing. A lease whose holder has expired or that is past its deadline ends without a request.
-- OFFSET 0 makes the planner look each of them up by its key: it has no statistics of a table that is small and new.
-- $1 after which name  $2 up to which  $3 batch
-- → name, token
select p.name, l.token
  from rowlock_policy p
       cross join lateral (select r.* from rowlock_lock r where r.name = p.name offset 0) l
       cross join lateral (select from rowlock_session m where m.id = l.session and {unexpired} offset 0) holder
 where p.name > $1::text and p.name <= $2::text and p.max_hold_us > 0
   and {since(l.acquired_at)} >= p.max_hold_us
   and not coalesce(l.asked_for = l.grant_id and l.asked_by is null, false)
   and not coalesce(l.deadline <= clock_timestamp(), false)
 order by p.name limit $3::bigint

-- statement overdue_permits
-- The same of holds of semaphores and shared_mutexes, by the name of the policy: the first columns of their primary key.
-- A hold that ends after this is not found by its token (hold_to_end), and a later hold has another.
-- OFFSET 0 makes the planner look each of them up by its key: it has no statistics of a table that is small and new.
-- $1 from which name  $2 up to which  $3 after which grant id of the first name  $4 batch
-- → name, token, grant id
select p.name, s.token, s.grant_id
  from rowlock_policy p
       cross join lateral (select r.* from rowlock_hold r where r.name = p.name offset 0) s
       cross join lateral (select from rowlock_session m where m.id = s.session and {unexpired} offset 0) holder
 where p.name >= $1::text and p.name <= $2::text and (p.name > $1::text or s.grant_id > $3::bigint)
   and p.max_hold_us > 0
   and {since(s.acquired_at)} >= p.max_hold_us
   and not (s.requested = 1 and s.asked_by is null)
   and not coalesce(s.deadline <= clock_timestamp(), false)
 order by p.name, s.grant_id limit $4::bigint
