-- The part of the history that records permits: of semaphores and shared_mutexes. Run after on.sql, on tables that
-- have them.

-- SEARCH_PATH FROM CURRENT: as in on.sql.
create or replace function rowlock_history_permit() returns trigger language plpgsql
set search_path from current as $$
declare
    hold record;
    begins boolean = tg_op = 'INSERT' or tg_op = 'UPDATE' and new.session <> old.session;
begin
    if tg_op = 'DELETE' then hold = old; else hold = new; end if;
    -- The kind first, as above.
    insert into rowlock_history (kind, at, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, db_user, counter_kind, permits, base)
    select case
               when tg_op = 'INSERT' then 'granted'
               when tg_op = 'UPDATE' and begins then 'reclaimed'
               when tg_op = 'UPDATE' and new.deadline = 'epoch' then 'forced'
               when tg_op = 'UPDATE' and new.permits < old.permits then 'downgraded'
               when tg_op = 'UPDATE' then 'altered'
               when old.deadline <= clock_timestamp()
                    or not exists (select from rowlock_session m
                                    where m.id = old.session and not m.ended) then 'expired'
               else 'released' end,
           clock_timestamp(), hold.name, hold.token, hold.session, hold.grant_id,
           case when begins and tg_op = 'UPDATE' then old.session end, hold.deadline,
           s.owner, s.host, s.pid, s.program, hold.note, session_user,
           hold.kind, hold.permits, hold.base
      from (values (1)) as one left join rowlock_session s on begins and s.id = hold.session;
    return null;
end $$;

create or replace function rowlock_history_permit_waiter() returns trigger language plpgsql
set search_path from current as $$
declare
    place record;
begin
    if tg_op = 'INSERT' then place = new; else place = old; end if;
    insert into rowlock_history (at, kind, name, session, grant_id, ticket, db_user, counter_kind, permits)
    values (clock_timestamp(), case tg_op when 'INSERT' then 'queued' else 'left' end,
            place.name, place.session, place.grant_id, place.ticket, session_user,
            place.kind, place.permits);
    return null;
end $$;

create or replace function rowlock_history_counter() returns trigger language plpgsql
set search_path from current as $$
declare
    counter record;
begin
    if tg_op = 'DELETE' then counter = old; else counter = new; end if;
    insert into rowlock_history (at, kind, name, token, db_user, counter_kind, permits)
    values (clock_timestamp(), case tg_op when 'DELETE' then 'deleted' else 'capacity_set' end,
            counter.name, counter.token, session_user, counter.kind, counter.capacity);
    return null;
end $$;

drop trigger if exists history_insert on rowlock_permit;
create trigger history_insert after insert on rowlock_permit
for each row execute function rowlock_history_permit();
drop trigger if exists history_update on rowlock_permit;
create trigger history_update after update on rowlock_permit
for each row when (new.session <> old.session or new.permits <> old.permits or new.token <> old.token
                   or new.name <> old.name or new.grant_id <> old.grant_id
                   or new.deadline = 'epoch' and old.deadline is distinct from 'epoch')
execute function rowlock_history_permit();
drop trigger if exists history_delete on rowlock_permit;
create trigger history_delete after delete on rowlock_permit
for each row when (old.deadline is distinct from 'epoch') execute function rowlock_history_permit();
drop trigger if exists history on rowlock_permit_waiter;
create trigger history after insert or delete on rowlock_permit_waiter
for each row execute function rowlock_history_permit_waiter();
drop trigger if exists history_insert on rowlock_semaphore;
create trigger history_insert after insert on rowlock_semaphore
for each row when (new.kind = 0) execute function rowlock_history_counter();
drop trigger if exists history_update on rowlock_semaphore;
create trigger history_update after update on rowlock_semaphore
for each row when (new.capacity <> old.capacity) execute function rowlock_history_counter();
drop trigger if exists history_delete on rowlock_semaphore;
create trigger history_delete after delete on rowlock_semaphore
for each row execute function rowlock_history_counter();
