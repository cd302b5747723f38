-- The part of the history that records who asks for a release, why and until when. Run after on_permits.sql, on tables
-- that have the columns of requests.
--
-- A request changes the row of the hold, under its lock: who asks, why, or the deadline. So each is recorded once, a
-- repetition after a lost reply, which changes nothing, not again. Asked at once: asked_by is NULL, and reason says
-- who and why. What an upgrade added to a hold is asked for with it, and is not recorded apart.

drop trigger if exists rowlock_history_asked;
create trigger rowlock_history_asked after update on rowlock_lease for each row
if new.asked_for = new.grant_id and new.grant_id = old.grant_id and new.session = old.session and new.token = old.token
   and not (old.asked_for <=> new.asked_for and old.asked_by <=> new.asked_by and old.reason <=> new.reason
            and old.deadline <=> new.deadline) then
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, reason, db_user)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end, user())
; end if;

-- A deadline of 1 is set by who sweeps the hold of a session that has ended.
drop trigger if exists rowlock_history_permit_asked;
create trigger rowlock_history_permit_asked after update on rowlock_permit for each row
if new.requested = 1 and new.base is null and new.grant_id = old.grant_id and new.session = old.session
   and new.deadline > 1
   and not (old.requested = 1 and old.asked_by <=> new.asked_by and old.reason <=> new.reason
            and old.deadline <=> new.deadline) then
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, reason, db_user,
                                 counter_kind, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end, user(),
            new.kind, new.permits)
; end if;
