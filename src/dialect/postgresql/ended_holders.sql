-- Which ended sessions are named by leases in some pages: those whose rows somebody kept locked.
-- $1 page from which  $2 before which page
select distinct l.session
  from rowlock_lease l join rowlock_session m on m.id = l.session
 where l.ctid >= ('(' || $1::bigint::text || ',0)')::tid and l.ctid < ('(' || $2::bigint::text || ',0)')::tid
   and l.session is not null and m.ended
