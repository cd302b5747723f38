-- The history: a record of what happens to leases, permits, places and sessions, kept by triggers, so that a
-- transition and its record commit together or not at all, whoever makes it: a client
-- or a person with psql. `rowlock migrate --history on` runs this; it is no numbered migration, and no
-- client asks for it. It can be repeated, and then puts back triggers that are missing.
--
-- Whoever changes the tables needs INSERT on the history and nothing else there: its rows are written with
-- the rights of the caller.
--
-- Of one name, ids and times are in the order of its transitions: each is recorded under the lock of the
-- lease's row, and its time is read there. Across names they are nearly so.
--   id                the order of the records
--   at                this server's clock, after the row was locked
--   kind              granted       a hold begins; the lease was free
--                     handed_over   … its holder gave it to this waiter
--                     taken_over    … the one before had ended with its session or by its own deadline
--                     reclaimed     … of a predecessor's session
--                     renewed       a lease lasts longer (extended, or a script's), or its client keeps one
--                                   that was released: with a greater token in its row
--                     released      the hold has ended; so has every hold of a session that has ended. A hold of all of a
--                                   lock that becomes one of a part is released, and granted with the same grant_id
--                     expired       the reaper freed what had ended with its session or by its deadline
--                     forced        the hold was ended by force; a lease's token was used up by that
--                     asked         somebody asks for the release: a request that changes who, why or until when
--                     upgraded      a hold of a shared_mutex is exclusive from now on, with this token
--                     downgraded    a shared_mutex is held in a weaker mode from now on, with fewer permits
--                     capacity_set  a semaphore has so many permits from now on
--                     deleted       the reaper deleted the row; later tokens are greater
--                     altered       none of these: somebody changed the row by other means
--                     queued, left  a place was taken; it is gone (served, given up or removed)
--                     session_opened, session_ended, session_expired
--   name              of the lock; null for sessions
--   token             after the transition
--   session           whose hold, place or session it is
--   grant_id          of the hold, or which the place becomes
--   ticket            of the place
--   previous_session  whose hold the row named before, when a hold begins
--   ends_at           of a hold its own deadline, after the change; of a session that is over its last expiry
--   owner, host, pid, program  of the session, when it opens, is over, or a hold of it begins
--   note              of the hold; of one that was forced, who did it; of a request, who asks; of one at once also why
--   reason            of a request, why
--   permits           of a counted hold, after the change; waited for; or the capacity. Null: all of the lock. Of a
--                     shared_mutex they say the mode, as in rowlock_hold
--   db_user           who was logged in to the database
create table if not exists rowlock_history (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    kind text not null,
    name text collate "C",
    token bigint,
    session bigint,
    grant_id bigint,
    ticket bigint,
    previous_session bigint,
    ends_at timestamptz,
    owner text,
    host text,
    pid bigint,
    program text,
    note text,
    db_user text not null,
    permits bigint,
    reason text,
    unique (name, id)
) with (vacuum_truncate = off, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.05);
-- SEARCH_PATH FROM CURRENT: these find the tables beside which they were made, by whomever they are called.
create or replace function rowlock_history_lease() returns trigger language plpgsql
set search_path from current as $$
declare
    begins boolean = tg_op <> 'DELETE' and new.session is not null
        and (old.session is null or new.session <> old.session
             or new.grant_id is distinct from old.grant_id);
    what text;
begin
    if tg_op = 'DELETE' then
        insert into rowlock_history (at, kind, name, token, session, grant_id, db_user)
        values (clock_timestamp(), 'deleted', old.name, old.token, old.session, old.grant_id,
                session_user);
        return null;
    end if;
    what = case
        when new.name <> old.name or new.token < old.token then 'altered'
        when begins and tg_op = 'INSERT' then 'granted'
        when begins and new.token = old.token then 'altered'
        when begins and old.session is null then 'granted'
        when begins and new.grant_id = old.grant_id then 'reclaimed'
        when begins and (old.deadline <= clock_timestamp()
                         or not exists (select from rowlock_session s
                                         where s.id = old.session and not s.ended)) then 'taken_over'
        when begins then 'handed_over'
        when new.session is not null and new.token > old.token and new.deadline <> old.deadline then 'renewed'
        when new.session is not null or old.session is null then 'altered'
        when new.used > old.used then 'released'
        when new.token > old.token then 'forced'
        when new.acquired_at is not null then 'expired'
        else 'released' end;
    insert into rowlock_history (at, kind, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, db_user)
    select clock_timestamp(), what, new.name, new.token, coalesce(new.session, old.session),
           coalesce(new.grant_id, old.grant_id), case when begins then old.session end, new.deadline,
           s.owner, s.host, s.pid, s.program, new.note, session_user
      from (values (1)) as one left join rowlock_session s on begins and s.id = new.session;
    return null;
end $$;

create or replace function rowlock_history_ticket() returns trigger language plpgsql
set search_path from current as $$
declare
    place record;
begin
    if tg_op = 'INSERT' then place = new; else place = old; end if;
    insert into rowlock_history (at, kind, name, session, grant_id, ticket, db_user, permits)
    values (clock_timestamp(), case tg_op when 'INSERT' then 'queued' else 'left' end,
            place.name, place.session, place.grant_id, place.ticket, session_user,
            place.weight);
    return null;
end $$;

create or replace function rowlock_history_session() returns trigger language plpgsql
set search_path from current as $$
declare
    about record;
begin
    if tg_op = 'DELETE' then about = old; else about = new; end if;
    -- The kind first, here and above. What is over by then is over by the time of the record.
    insert into rowlock_history (kind, at, session, ends_at, owner, host, pid, program, db_user)
    values (case when tg_op = 'INSERT' then 'session_opened'
                 when tg_op = 'UPDATE' and not new.ended then 'altered'
                 when old.expires_at <= clock_timestamp() then 'session_expired'
                 else 'session_ended' end,
            clock_timestamp(),
            about.id, case when tg_op <> 'INSERT' then old.expires_at end,
            about.owner, about.host, about.pid, about.program, session_user);
    return null;
end $$;

drop trigger if exists history_insert on rowlock_lock;
create trigger history_insert after insert on rowlock_lock
for each row when (new.session is not null) execute function rowlock_history_lease();
-- Counted holds, which have records of their own, raise the token of a row without a sole holder, and their upgrades set
-- its grant_id.
drop trigger if exists history_update on rowlock_lock;
create trigger history_update after update on rowlock_lock
for each row when ((new.session is distinct from old.session or new.token <> old.token
                    or new.grant_id is distinct from old.grant_id or new.name <> old.name)
                   and not (new.session is null and old.session is null and new.name = old.name
                            and (new.token > old.token and (old.used <> 0 or new.used <> 0 or new.capacity is not null)
                                 or new.token = old.token and new.grant_id is null)))
execute function rowlock_history_lease();
drop trigger if exists history_delete on rowlock_lock;
create trigger history_delete after delete on rowlock_lock
for each row execute function rowlock_history_lease();
drop trigger if exists history on rowlock_ticket;
create trigger history after insert or delete on rowlock_ticket
for each row execute function rowlock_history_ticket();
drop trigger if exists history_insert on rowlock_session;
create trigger history_insert after insert on rowlock_session
for each row execute function rowlock_history_session();
drop trigger if exists history_update on rowlock_session;
create trigger history_update after update on rowlock_session
for each row when (new.ended <> old.ended) execute function rowlock_history_session();
drop trigger if exists history_delete on rowlock_session;
create trigger history_delete after delete on rowlock_session
for each row when (not old.ended) execute function rowlock_history_session();

-- Counted holds: of semaphores and shared_mutexes.
create or replace function rowlock_history_permit() returns trigger language plpgsql
set search_path from current as $$
declare
    hold record;
    begins boolean = tg_op = 'INSERT' or tg_op = 'UPDATE' and new.session <> old.session;
begin
    if tg_op = 'DELETE' then hold = old; else hold = new; end if;
    -- The kind first, as above.
    insert into rowlock_history (kind, at, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, db_user, permits)
    select case
               when tg_op = 'INSERT' then 'granted'
               when tg_op = 'UPDATE' and begins then 'reclaimed'
               when tg_op = 'UPDATE' and new.deadline = 'epoch' then 'forced'
               when tg_op = 'UPDATE' and (new.weight < old.weight or new.weight > old.weight and new.token > old.token)
                    then 'downgraded'
               when tg_op = 'UPDATE' then 'altered'
               when old.deadline <= clock_timestamp()
                    or not exists (select from rowlock_session m
                                    where m.id = old.session and not m.ended) then 'expired'
               else 'released' end,
           clock_timestamp(), hold.name, hold.token, hold.session, hold.grant_id,
           case when begins and tg_op = 'UPDATE' then old.session end, hold.deadline,
           s.owner, s.host, s.pid, s.program, hold.note, session_user,
           hold.weight
      from (values (1)) as one left join rowlock_session s on begins and s.id = hold.session;
    return null;
end $$;

-- An upgrade, or its end; the end of its hold, or a change of its weight, is recorded with that.
create or replace function rowlock_history_upgrade() returns trigger language plpgsql
set search_path from current as $$
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, db_user, permits)
    select clock_timestamp(), case when new.grant_id is null then 'downgraded' else 'upgraded' end, new.name,
           case when new.grant_id is null then h.token else new.token end, h.session, h.grant_id, h.deadline, h.note,
           session_user, case when new.grant_id is null then h.weight else 1999999999 end
      from rowlock_hold h where h.name = new.name and not (new.grant_id is null and h.token = new.token);
    return null;
end $$;

create or replace function rowlock_history_capacity() returns trigger language plpgsql
set search_path from current as $$
begin
    insert into rowlock_history (at, kind, name, token, db_user, permits)
    values (clock_timestamp(), 'capacity_set', new.name, new.token, session_user, new.capacity);
    return null;
end $$;

drop trigger if exists history_insert on rowlock_hold;
create trigger history_insert after insert on rowlock_hold
for each row execute function rowlock_history_permit();
drop trigger if exists history_update on rowlock_hold;
create trigger history_update after update on rowlock_hold
for each row when (new.session <> old.session or new.weight <> old.weight or new.token <> old.token
                   or new.name <> old.name or new.grant_id <> old.grant_id
                   or new.deadline = 'epoch' and old.deadline is distinct from 'epoch')
execute function rowlock_history_permit();
drop trigger if exists history_delete on rowlock_hold;
create trigger history_delete after delete on rowlock_hold
for each row when (old.deadline is distinct from 'epoch') execute function rowlock_history_permit();
drop trigger if exists history_upgrade on rowlock_lock;
create trigger history_upgrade after update on rowlock_lock
for each row when (new.session is null and old.session is null and (new.grant_id is null) <> (old.grant_id is null))
execute function rowlock_history_upgrade();
drop trigger if exists history_capacity_insert on rowlock_lock;
create trigger history_capacity_insert after insert on rowlock_lock
for each row when (new.capacity is not null) execute function rowlock_history_capacity();
drop trigger if exists history_capacity_update on rowlock_lock;
create trigger history_capacity_update after update on rowlock_lock
for each row when (new.capacity is not null and new.capacity is distinct from old.capacity)
execute function rowlock_history_capacity();

-- Who asks for a release, why and until when. A request changes the row of the hold, under its lock: who asks, why, or
-- the deadline. So each is recorded once, a repetition after a lost reply, which changes nothing, not again. Asked at
-- once: asked_by is NULL, and reason says who and why.
create or replace function rowlock_history_asked() returns trigger language plpgsql
set search_path from current as $$
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, reason, db_user)
    values (clock_timestamp(), 'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end, session_user);
    return null;
end $$;

create or replace function rowlock_history_permit_asked() returns trigger language plpgsql
set search_path from current as $$
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, reason, db_user,
                                 permits)
    values (clock_timestamp(), 'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end, session_user,
            new.weight);
    return null;
end $$;

drop trigger if exists history_asked on rowlock_lock;
create trigger history_asked after update on rowlock_lock
for each row when (new.asked_for = new.grant_id and new.grant_id = old.grant_id and new.session = old.session
                   and new.token = old.token
                   and (old.asked_for is distinct from new.asked_for or old.asked_by is distinct from new.asked_by
                        or old.reason is distinct from new.reason or old.deadline is distinct from new.deadline))
execute function rowlock_history_asked();
drop trigger if exists history_asked on rowlock_hold;
create trigger history_asked after update on rowlock_hold
for each row when (new.requested = 1 and new.grant_id = old.grant_id and new.session = old.session
                   and new.deadline > 'epoch'
                   and (old.requested <> 1 or old.asked_by is distinct from new.asked_by
                        or old.reason is distinct from new.reason or old.deadline is distinct from new.deadline))
execute function rowlock_history_permit_asked();
