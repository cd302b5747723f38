-- Makes the row of a lease that is waited for, free, if the reaper has deleted it: there must be a row
-- to compare and set. Its token is the floor, which no grant goes below.
-- $1 name
insert into rowlock_lease (name, token, changed_at)
select $1, o.floor, {now} from rowlock_token_floor o where o.id = 1
on conflict (name) do nothing
