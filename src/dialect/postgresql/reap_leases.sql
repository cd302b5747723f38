-- Frees leases that are free by definition but still name a holder, in some pages, a batch in the
-- order they lie in (why by pages: delete_leases.sql). Judged in p, then locked by compare-and-set on
-- the row's own token and session: a lease that was granted again meanwhile has another token. Locked
-- rows (a fenced transaction) are left for another round. Once k has a row nobody else can change it,
-- so its ctid still names it.
-- acquired_at stays: by it the history tells this from a release (migrations/*/history/on.sql).
-- $1 batch  $2 page  $3 row in it, after which  $4 before which page
-- → how many were freed; page and row of the last that was looked at, NULL if there is no more in these
-- pages
with k as materialized (
         select l.ctid as place, l.name, l.token, l.session
           from rowlock_lease l left join rowlock_session s on s.id = l.session
          where l.ctid > ('(' || $2::bigint::text || ',' || $3::bigint::text || ')')::tid
            and l.ctid < ('(' || $4::bigint::text || ',0)')::tid
            and l.session is not null and {free}
          order by l.ctid limit $1::bigint),
     locked as materialized (
         select l.ctid as place from k join rowlock_lease l
                on l.name = k.name and l.token = k.token and l.session = k.session
          where l.ctid = any (array(select k.place from k))
          order by l.ctid for update of l skip locked),
     u as (
         update rowlock_lease l
            set session = null, grant_id = null, thread = null, note = null,
                deadline = null, changed_at = clock_timestamp()
          where l.ctid = any (array(select locked.place from locked)) returning 1)
select (select count(*) from u), {last_of_k}
