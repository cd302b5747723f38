-- statement max_hold
-- The longest time for which a grant of a name may be held, in µs; no row: there is no limit. One snapshot, reads only.
-- $1 name
select max_hold_us from rowlock_policy where name = $1::text and max_hold_us > 0

-- statement remove_max_hold
-- Removes that limit. Repeatable after a lost reply. A reaper that has read the row before asks once more.
-- $1 name
delete from rowlock_policy where name = $1::text

-- statement last_of_policies
-- The last of a batch of names that have a policy, for the reaper: it looks for overdue holds of a batch of names at a time,
-- so that no statement grows with the number of policies. By primary key; reads only.
-- $1 after which name  $2 batch
-- → the name, NULL if no policy follows
select max(p.name)
  from (select q.name from rowlock_policy q where q.name > $1::text order by q.name limit $2::bigint) p

-- statement overdue_leases
-- A batch of leases that are held for longer than the policy of their name allows, and whose release was not asked for at
-- once: asked_by is NULL then, as adopt_lease and renew_lease judge it. For the reaper, which asks for each
-- (lease_protocol::request_release). One snapshot by the database's clock; reads only, and locks nothing.
-- From the few policies to their leases by primary key: the other leases are not read.
-- A release, a renewal, an adoption or another grant that commits after this has changed the token: the request compares
-- it, and does nothing. A lease whose holder has expired or that is past its deadline ends without a request.
-- $1 after which name  $2 up to which  $3 batch
-- → name, token
select p.name, l.token
  from rowlock_policy p {join} rowlock_lock l {join} rowlock_session m
 where p.name > $1 and p.name <= $2 and p.max_hold_us > 0
   and l.name = p.name and {since(l.acquired_at)} >= p.max_hold_us
   and not coalesce(l.asked_for = l.grant_id and l.asked_by is null, 0)
   and not coalesce(l.deadline <= {now}, 0)
   and m.id = l.session and m.ended = 0 and m.expires_at > {now}
 order by p.name limit $3

-- statement overdue_permits
-- The same of holds of semaphores and shared_mutexes, by the name of the policy: the first columns of their primary key.
-- A hold that ends after this is not found by its token (hold_to_end), and a later hold has another.
-- $1 from which name  $2 up to which  $3 after which grant id of the first name  $4 batch
-- → name, token, grant id
select p.name, s.token, s.grant_id
  from rowlock_policy p {join} rowlock_hold s {join} rowlock_session m
 where p.name >= $1 and p.name <= $2 and p.max_hold_us > 0
   and s.name = p.name and (p.name > $1 or s.grant_id > $3)
   and {since(s.acquired_at)} >= p.max_hold_us
   and not (s.requested = 1 and s.asked_by is null)
   and not coalesce(s.deadline <= {now}, 0)
   and m.id = s.session and m.ended = 0 and m.expires_at > {now}
 order by p.name, s.grant_id limit $4

-- statement set_max_hold
-- Limits how long a grant of a name may be held. One row by primary key: of two clients the later one counts. Repeatable
-- after a lost reply. A reaper that has read the row before asks by the limit before (overdue_leases).
-- $1 name  $2 limit in µs
insert into rowlock_policy (name, max_hold_us) values ($1::text, $2::bigint)
on conflict (name) do update set max_hold_us = excluded.max_hold_us
