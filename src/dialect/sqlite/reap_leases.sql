-- Frees leases that are free by definition but still name a holder, among some names: of so few rows
-- that the file is not locked for long, however many there are.
-- acquired_at stays: by it the history tells this from a release (migrations/*/history/on.sql).
-- $1 after which name  $2 up to which, NULL = to the last
update rowlock_lease
   set session = null, grant_id = null, thread = null, note = null, deadline = null, changed_at = {now}
 where name in (select l.name
                  from rowlock_lease l left join rowlock_session s on s.id = l.session
                 where l.name > $1 and l.name <= coalesce($2, x'ff')
                   and l.session is not null and {free})
