-- Frees leases that are free by definition but still name a holder, a batch in name order. Judged in
-- p, then locked by compare-and-set on the row's own token and session: a lease that was granted
-- again meanwhile has another token. Locked rows (a fenced transaction) are left for another round.
-- $1 batch
with p as materialized (
         select l.name, l.token, l.session
           from rowlock_lease l left join rowlock_session s on s.id = l.session
          where l.session is not null and {free}
          order by l.name limit $1::bigint),
     k as materialized (
         select l.name from p join rowlock_lease l
                on l.name = p.name and l.token = p.token and l.session = p.session
          order by l.name for update of l skip locked)
update rowlock_lease l
   set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
       deadline = null, changed_at = clock_timestamp()
  from k where l.name = k.name
