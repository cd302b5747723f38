-- Moves a lease of a predecessor, ended in this transaction, to our session, compare-and-set on the
-- row's own columns; the grant id stays. A promised token is left out. Nobody has been told of a promise
-- that this breaks: a session that may be reclaimed gives its leases on durably (pass_on.sql).
-- Our session lives here.
-- $1 name  $2 my session  $3 the predecessor's session  $4 its token
update rowlock_lease l
   set session = $2::bigint, token = greatest(l.token, f.floor) + 1 + (l.successor is not null)::int,
       successor = null,
       acquired_at = clock_timestamp(), changed_at = clock_timestamp()
  from rowlock_token_floor f
 where l.name = $1::text and l.session = $3::bigint and l.token = $4::bigint
   and not coalesce(l.deadline <= clock_timestamp(), false)
   and exists (select from rowlock_session m where m.id = $2::bigint and {live})
