-- A look at several leases in one snapshot: reads, locks nothing, writes nothing. A name that has no
-- row does not come back: whether somebody waits for it is waited_for's to say.
-- $1 my session  $2 … $17 names; may repeat
-- → the floor, whether my session lives, name, token, whether it may be granted, its grant id, its
--   session, whether that has expired, what is left of it in µs, whether somebody waits for it. One row
--   with NULLs if there is none.
select f.floor,
       (select count(*) from rowlock_session m where m.id = $1 and {live}),
       l.name, l.token, {free}, l.grant_id, l.session,
       coalesce(s.expires_at <= {now}, 0) and not {free},
       coalesce(least(s.expires_at, l.deadline), s.expires_at) - {now},
       case when {free} then {waited_here} else 0 end
  from rowlock_token_floor f
       left join rowlock_lease l force index (primary)
              on l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
       left join rowlock_session s on s.id = l.session
 where f.id = 1
