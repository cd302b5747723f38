-- The part of the history that records who asks for a release, why and until when. Run after on_permits.sql, on tables
-- that have the columns of requests.
--
-- A request changes the row of the hold, under its lock: who asks, why, or the deadline. So each is recorded once, a
-- repetition after a lost reply, which changes nothing, not again. Asked at once: asked_by is NULL, and reason says
-- who and why. What an upgrade added to a hold is asked for with it, and is not recorded apart.

drop trigger if exists rowlock_history_asked;
create trigger rowlock_history_asked after update on rowlock_lease for each row
when new.asked_for = new.grant_id and new.grant_id = old.grant_id and new.session = old.session
     and new.token = old.token
     and (old.asked_for is not new.asked_for or old.asked_by is not new.asked_by or old.reason is not new.reason
          or old.deadline is not new.deadline)
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, reason)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end)
; end;

drop trigger if exists rowlock_history_permit_asked;
create trigger rowlock_history_permit_asked after update on rowlock_permit for each row
when new.requested = 1 and new.base is null and new.grant_id = old.grant_id and new.session = old.session
     and new.deadline > 1
     and (old.requested <> 1 or old.asked_by is not new.asked_by or old.reason is not new.reason
          or old.deadline is not new.deadline)
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, reason,
                                 counter_kind, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end,
            new.kind, new.permits)
; end;
