-- The part of the history that records permits: of semaphores and shared_mutexes. Run after on.sql, on tables that
-- have them.

drop trigger if exists rowlock_history_permit_granted;
create trigger rowlock_history_permit_granted after insert on rowlock_permit for each row
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, owner, host, pid, program, note,
                                 counter_kind, permits, base)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'granted', new.name, new.token, new.session, new.grant_id, new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note, new.kind, new.permits, new.base)
; end;

drop trigger if exists rowlock_history_permit;
create trigger rowlock_history_permit after update on rowlock_permit for each row
when new.session <> old.session or new.permits <> old.permits or new.token <> old.token or new.name <> old.name
     or new.grant_id <> old.grant_id or (new.deadline = 0 and old.deadline is not 0)
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, counter_kind, permits, base)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
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
            new.note, new.kind, new.permits, new.base)
; end;

drop trigger if exists rowlock_history_permit_ended;
create trigger rowlock_history_permit_ended after delete on rowlock_permit for each row
when old.deadline is not 0
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, counter_kind, permits, base)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            case
                when old.deadline <= cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000
                  or not exists (select 1 from rowlock_session m
                                  where m.id = old.session and m.ended = 0) then 'expired'
                else 'released' end,
            old.name, old.token, old.session, old.grant_id, old.deadline, old.note,
            old.kind, old.permits, old.base)
; end;

drop trigger if exists rowlock_history_permit_queued;
create trigger rowlock_history_permit_queued after insert on rowlock_permit_waiter for each row
begin
    insert into rowlock_history (at, kind, name, session, grant_id, ticket, counter_kind, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'queued', new.name, new.session, new.grant_id, new.ticket,
            new.kind, new.permits)
; end;

drop trigger if exists rowlock_history_permit_left;
create trigger rowlock_history_permit_left after delete on rowlock_permit_waiter for each row
begin
    insert into rowlock_history (at, kind, name, session, grant_id, ticket, counter_kind, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'left', old.name, old.session, old.grant_id, old.ticket,
            old.kind, old.permits)
; end;

drop trigger if exists rowlock_history_counter_made;
create trigger rowlock_history_counter_made after insert on rowlock_semaphore for each row
when new.kind = 0
begin
    insert into rowlock_history (at, kind, name, token, counter_kind, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'capacity_set', new.name, new.token, new.kind, new.capacity)
; end;

drop trigger if exists rowlock_history_counter;
create trigger rowlock_history_counter after update on rowlock_semaphore for each row
when new.capacity <> old.capacity
begin
    insert into rowlock_history (at, kind, name, token, counter_kind, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'capacity_set', new.name, new.token, new.kind, new.capacity)
; end;

drop trigger if exists rowlock_history_counter_deleted;
create trigger rowlock_history_counter_deleted after delete on rowlock_semaphore for each row
begin
    insert into rowlock_history (at, kind, name, token, counter_kind, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'deleted', old.name, old.token, old.kind, old.capacity)
; end;
