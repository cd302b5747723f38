-- Which of these names are surely held by a live session at this moment, for tries that would fail: reads a
-- snapshot, locks and writes nothing. Whatever else may be the case, acquire.sql finds out.
-- $1 names
-- → the names that are held
select r.name
  from pg_catalog.unnest($1::text[]) as r (name) cross join lateral (
       select from rowlock_lease l join rowlock_session m on m.id = l.session
        where l.name = r.name and {live} and (l.deadline is null or l.deadline > clock_timestamp())
       offset 0) l
