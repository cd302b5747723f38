-- The history: a record of what happens to leases, permits, places and sessions, kept by triggers, so that a
-- transition and its record commit together or not at all, whoever makes it: a client
-- or a person with the sqlite3 tool. `rowlock migrate --history on` runs this; it is no numbered migration, and no
-- client asks for it. It can be repeated, and then puts back triggers that are missing.
--
-- There is one writer, so ids are in the order of all transitions.
-- The clock is the one that the leases are written with, to the digit (src/sql/fragments/sqlite.sql): a
-- deadline that was over when a lease was taken is over in the record.
--   id                the order of the records
--   at                this machine's clock, in milliseconds; microseconds since 1970, UTC
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
create table if not exists rowlock_history (
    id integer primary key autoincrement,
    at integer not null,
    kind text not null,
    name text,
    token integer,
    session integer,
    grant_id integer,
    ticket integer,
    previous_session integer,
    ends_at integer,
    owner text,
    host text,
    pid integer,
    program text,
    note text,
    permits integer,
    reason text
);
create index if not exists rowlock_history_name on rowlock_history (name, id);

drop trigger if exists rowlock_history_granted;
create trigger rowlock_history_granted after insert on rowlock_lock for each row
when new.session is not null
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'granted', new.name, new.token, new.session, new.grant_id, null, new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note)
; end;

-- Counted holds, which have records of their own, raise the token of a row without a sole holder, and their upgrades set
-- its grant_id.
drop trigger if exists rowlock_history_lease;
create trigger rowlock_history_lease after update on rowlock_lock for each row
when (new.session is not old.session or new.token <> old.token
      or new.grant_id is not old.grant_id or new.name <> old.name)
     and not (new.session is null and old.session is null and new.name = old.name
              and (new.token > old.token and (old.used <> 0 or new.used <> 0 or new.capacity is not null)
                   or new.token = old.token and new.grant_id is null))
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            case
                when new.name <> old.name or new.token < old.token then 'altered'
                when new.session is null and old.session is null then 'altered'
                when new.session is null and new.used > old.used then 'released'
                when new.session is null and new.token > old.token then 'forced'
                when new.session is null and new.acquired_at is not null then 'expired'
                when new.session is null then 'released'
                when new.token = old.token then 'altered'
                when old.session is null then 'granted'
                when new.session = old.session and new.grant_id is old.grant_id
                 and new.deadline <> old.deadline then 'renewed'
                when new.session = old.session and new.grant_id is old.grant_id then 'altered'
                when new.grant_id = old.grant_id then 'reclaimed'
                when old.deadline <= cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000
                  or not exists (select 1 from rowlock_session s
                                  where s.id = old.session
                                    and s.ended = 0) then 'taken_over'
                else 'handed_over' end,
            new.name, new.token, coalesce(new.session, old.session),
            coalesce(new.grant_id, old.grant_id),
            case when new.session is not null and (new.session is not old.session
                                                or new.grant_id is not old.grant_id)
                 then old.session end,
            new.deadline,
            (select s.owner from rowlock_session s
              where s.id = case when new.token > old.token then new.session end),
            (select s.host from rowlock_session s
              where s.id = case when new.token > old.token then new.session end),
            (select s.pid from rowlock_session s
              where s.id = case when new.token > old.token then new.session end),
            (select s.program from rowlock_session s
              where s.id = case when new.token > old.token then new.session end),
            new.note)
; end;

drop trigger if exists rowlock_history_deleted;
create trigger rowlock_history_deleted after delete on rowlock_lock for each row
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'deleted', old.name, old.token, old.session, old.grant_id)
; end;

drop trigger if exists rowlock_history_queued;
create trigger rowlock_history_queued after insert on rowlock_ticket for each row
begin
    insert into rowlock_history (at, kind, name, session, grant_id, ticket, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'queued', new.name, new.session, new.grant_id, new.ticket,
            new.weight)
; end;

drop trigger if exists rowlock_history_left;
create trigger rowlock_history_left after delete on rowlock_ticket for each row
begin
    insert into rowlock_history (at, kind, name, session, grant_id, ticket, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'left', old.name, old.session, old.grant_id, old.ticket,
            old.weight)
; end;

drop trigger if exists rowlock_history_opened;
create trigger rowlock_history_opened after insert on rowlock_session for each row
begin
    insert into rowlock_history (at, kind, session, ends_at, owner, host, pid, program)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'session_opened', new.id, null, new.owner, new.host, new.pid, new.program)
; end;

drop trigger if exists rowlock_history_ended;
create trigger rowlock_history_ended after update on rowlock_session for each row
when new.ended <> old.ended
begin
    insert into rowlock_history (at, kind, session, ends_at, owner, host, pid, program)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            case when new.ended = 0 then 'altered' else
            case when old.expires_at <= cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000
                 then 'session_expired' else 'session_ended' end end,
            new.id, old.expires_at, new.owner, new.host, new.pid, new.program)
; end;

drop trigger if exists rowlock_history_left_session;
create trigger rowlock_history_left_session after delete on rowlock_session for each row
when old.ended = 0
begin
    insert into rowlock_history (at, kind, session, ends_at, owner, host, pid, program)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            case when old.expires_at <= cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000
                 then 'session_expired' else 'session_ended' end,
            old.id, old.expires_at, old.owner, old.host, old.pid, old.program)
; end;

-- Counted holds: of semaphores and shared_mutexes.
drop trigger if exists rowlock_history_permit_granted;
create trigger rowlock_history_permit_granted after insert on rowlock_hold for each row
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, owner, host, pid, program, note,
                                 permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'granted', new.name, new.token, new.session, new.grant_id, new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note, new.weight)
; end;

drop trigger if exists rowlock_history_permit;
create trigger rowlock_history_permit after update on rowlock_hold for each row
when new.session <> old.session or new.weight <> old.weight or new.token <> old.token or new.name <> old.name
     or new.grant_id <> old.grant_id or (new.deadline = 0 and old.deadline is not 0)
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            case
                when new.session <> old.session then 'reclaimed'
                when new.deadline = 0 then 'forced'
                when new.weight < old.weight or new.weight > old.weight and new.token > old.token then 'downgraded'
                else 'altered' end,
            new.name, new.token, new.session, new.grant_id,
            case when new.session <> old.session then old.session end, new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note, new.weight)
; end;

drop trigger if exists rowlock_history_permit_ended;
create trigger rowlock_history_permit_ended after delete on rowlock_hold for each row
when old.deadline is not 0
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            case
                when old.deadline <= cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000
                  or not exists (select 1 from rowlock_session m
                                  where m.id = old.session and m.ended = 0) then 'expired'
                else 'released' end,
            old.name, old.token, old.session, old.grant_id, old.deadline, old.note,
            old.weight)
; end;

-- An upgrade, or its end; the end of its hold, or a change of its weight, is recorded with that.
drop trigger if exists rowlock_history_upgrade;
create trigger rowlock_history_upgrade after update on rowlock_lock for each row
when new.session is null and old.session is null and (new.grant_id is null) <> (old.grant_id is null)
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, permits)
    select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
           case when new.grant_id is null then 'downgraded' else 'upgraded' end, new.name,
           case when new.grant_id is null then h.token else new.token end, h.session, h.grant_id, h.deadline, h.note,
           case when new.grant_id is null then h.weight else 1999999999 end
      from rowlock_hold h where h.name = new.name and not (new.grant_id is null and h.token = new.token)
; end;

drop trigger if exists rowlock_history_capacity_made;
create trigger rowlock_history_capacity_made after insert on rowlock_lock for each row
when new.capacity is not null
begin
    insert into rowlock_history (at, kind, name, token, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'capacity_set', new.name, new.token, new.capacity)
; end;

drop trigger if exists rowlock_history_capacity;
create trigger rowlock_history_capacity after update on rowlock_lock for each row
when new.capacity is not null and new.capacity is not old.capacity
begin
    insert into rowlock_history (at, kind, name, token, permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'capacity_set', new.name, new.token, new.capacity)
; end;

-- Who asks for a release, why and until when. A request changes the row of the hold, under its lock: who asks, why, or
-- the deadline. So each is recorded once, a repetition after a lost reply, which changes nothing, not again. Asked at
-- once: asked_by is NULL, and reason says who and why.
drop trigger if exists rowlock_history_asked;
create trigger rowlock_history_asked after update on rowlock_lock for each row
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
create trigger rowlock_history_permit_asked after update on rowlock_hold for each row
when new.requested = 1 and new.grant_id = old.grant_id and new.session = old.session
     and new.deadline > 1
     and (old.requested <> 1 or old.asked_by is not new.asked_by or old.reason is not new.reason
          or old.deadline is not new.deadline)
begin
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, reason,
                                 permits)
    values (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000,
            'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end,
            new.weight)
; end;
