-- Grants a lease whose row does not exist. The token is computed here and not from the probe: between
-- the two a stopped client may sleep longer than the reaper's grace. If the floor moved since the
-- probe nothing is inserted, if another inserted first the name is taken (1062): probe again.
-- Our session lives here (fragment live).
-- $1 name  $2 my session  $3 grant id  $4 thread  $5 note  $6 own deadline in µs, or NULL
-- $7 new token: the probed floor + 1
insert into rowlock_lease (name, token, session, grant_id, thread, note,
                           acquired_at, changed_at, deadline)
select $1, f.floor + 1, $2, $3, $4, $5, {now}, {now}, {now} + $6
  from rowlock_token_floor f where f.id = 1 and f.floor + 1 = $7
   and (select 1 from rowlock_session m where m.id = $2 and {live}) = 1
