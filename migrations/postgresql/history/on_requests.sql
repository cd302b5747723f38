-- The part of the history that records who asks for a release, why and until when. Run after on_permits.sql, on tables
-- that have the columns of requests.
--
-- A request changes the row of the hold, under its lock: who asks, why, or the deadline. So each is recorded once, a
-- repetition after a lost reply, which changes nothing, not again. Asked at once: asked_by is NULL, and reason says
-- who and why. What an upgrade added to a hold is asked for with it, and is not recorded apart.

-- SEARCH_PATH FROM CURRENT: as in on.sql.
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
                                 counter_kind, permits)
    values (clock_timestamp(), 'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end, session_user,
            new.kind, new.permits);
    return null;
end $$;

drop trigger if exists history_asked on rowlock_lease;
create trigger history_asked after update on rowlock_lease
for each row when (new.asked_for = new.grant_id and new.grant_id = old.grant_id and new.session = old.session
                   and new.token = old.token
                   and (old.asked_for is distinct from new.asked_for or old.asked_by is distinct from new.asked_by
                        or old.reason is distinct from new.reason or old.deadline is distinct from new.deadline))
execute function rowlock_history_asked();
drop trigger if exists history_asked on rowlock_permit;
create trigger history_asked after update on rowlock_permit
for each row when (new.requested = 1 and new.base is null and new.grant_id = old.grant_id and new.session = old.session
                   and new.deadline > 'epoch'
                   and (old.requested <> 1 or old.asked_by is distinct from new.asked_by
                        or old.reason is distinct from new.reason or old.deadline is distinct from new.deadline))
execute function rowlock_history_permit_asked();
