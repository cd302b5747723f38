-- Makes the row of a lease that is waited for, free, if the reaper has deleted it: grant_next needs it.
-- Its token is the floor, which no grant goes below.
-- $1 name
insert into rowlock_lease (name, token, changed_at)
select $1::text, o.floor, clock_timestamp() from rowlock_token_floor o
on conflict (name) do nothing
