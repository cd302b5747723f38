-- Some places of a session, as `places`, by their grant ids: where one that was just taken is looked
-- at. By the session the server would step over the index entries of all places it had before, until
-- vacuum comes.
-- $1 my session  $2 grant ids, as an array's text
with mine as materialized (
         select w.name, w.grant_id, w.ticket from rowlock_waiter w
          where w.grant_id = any ($2::text::bigint[]) and w.session = $1::bigint),
     {places}
