-- The part of the history that records permits: of semaphores and shared_mutexes. Run after on.sql, on tables that
-- have them.
--
-- No trigger of a DELETE, nor of an INSERT with VALUES, reads another table: there InnoDB locks what it reads. So who
-- sweeps a hold of a session that has ended sets its deadline first: `expired` is what is past that.

drop trigger if exists rowlock_history_permit_granted;
create trigger rowlock_history_permit_granted after insert on rowlock_permit for each row
insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, owner, host, pid, program, note,
                             db_user, counter_kind, permits, base)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'granted', new.name, new.token, new.session, new.grant_id, new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note, user(), new.kind, new.permits, new.base);

drop trigger if exists rowlock_history_permit;
create trigger rowlock_history_permit after update on rowlock_permit for each row
if new.session <> old.session or new.permits <> old.permits or new.token <> old.token or new.name <> old.name
   or new.grant_id <> old.grant_id or (new.deadline = 0 and not (old.deadline <=> 0)) then
    insert into rowlock_history (at, kind, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, db_user, counter_kind, permits, base)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            case
                when new.session <> old.session then 'reclaimed'
                when new.deadline = 0 then 'forced'
                when new.permits < old.permits then 'downgraded'
                else 'altered' end,
            new.name, new.token, new.session, new.grant_id,
            case when new.session <> old.session then old.session end, new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note, user(), new.kind, new.permits, new.base)
; end if;

drop trigger if exists rowlock_history_permit_ended;
create trigger rowlock_history_permit_ended after delete on rowlock_permit for each row
if not (old.deadline <=> 0) then
    insert into rowlock_history (kind, at, name, token, session, grant_id, ends_at, note, db_user,
                                 counter_kind, permits, base)
    values (case
                when old.deadline <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6))
                then 'expired'
                else 'released' end,
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            old.name, old.token, old.session, old.grant_id, old.deadline, old.note, user(),
            old.kind, old.permits, old.base)
; end if;

drop trigger if exists rowlock_history_permit_queued;
create trigger rowlock_history_permit_queued after insert on rowlock_permit_waiter for each row
insert into rowlock_history (at, kind, name, session, grant_id, ticket, db_user, counter_kind, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'queued', new.name, new.session, new.grant_id, new.ticket, user(),
            new.kind, new.permits);

drop trigger if exists rowlock_history_permit_left;
create trigger rowlock_history_permit_left after delete on rowlock_permit_waiter for each row
insert into rowlock_history (at, kind, name, session, grant_id, ticket, db_user, counter_kind, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'left', old.name, old.session, old.grant_id, old.ticket, user(),
            old.kind, old.permits);

drop trigger if exists rowlock_history_counter_made;
create trigger rowlock_history_counter_made after insert on rowlock_semaphore for each row
if new.kind = 0 then
    insert into rowlock_history (at, kind, name, token, db_user, counter_kind, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'capacity_set', new.name, new.token, user(), new.kind, new.capacity)
; end if;

drop trigger if exists rowlock_history_counter;
create trigger rowlock_history_counter after update on rowlock_semaphore for each row
if new.capacity <> old.capacity then
    insert into rowlock_history (at, kind, name, token, db_user, counter_kind, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'capacity_set', new.name, new.token, user(), new.kind, new.capacity)
; end if;

drop trigger if exists rowlock_history_counter_deleted;
create trigger rowlock_history_counter_deleted after delete on rowlock_semaphore for each row
insert into rowlock_history (at, kind, name, token, db_user, counter_kind, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'deleted', old.name, old.token, user(), old.kind, old.capacity);
