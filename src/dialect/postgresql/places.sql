-- All places of a session, in one snapshot; reads only. What comes back: fragment places.
-- $1 my session
with mine as materialized (
         select w.name, w.grant_id, w.ticket from rowlock_waiter w where w.session = $1::bigint),
     {places}
