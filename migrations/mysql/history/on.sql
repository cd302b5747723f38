-- The history: a record of what happens to leases, permits, places and sessions, kept by triggers, so that a
-- transition and its record commit together or not at all, whoever makes it: a client
-- or a person with the mysql tool. `rowlock migrate --history on` runs this; it is no numbered migration, and no
-- client asks for it. It can be repeated, and then puts back triggers that are missing.
--
-- Triggers run with the rights of whoever made them: applications need none on the history, and as long as
-- there are triggers that user must stay. With a binary log making them needs SUPER, or the server's
-- log_bin_trust_function_creators.
--
-- Each body is one statement, an IF, and its INSERT has VALUES: an INSERT … SELECT would lock the counter of
-- the ids to the end of the statement, and two statements over several leases could meet there in a circle.
-- What is read of rowlock_session is read without locks at READ COMMITTED, which our connections have. A
-- caller's own transaction may have another level, and can only release: then nothing of it is read, and
-- no heartbeat waits for that transaction.
--
-- Of one name, ids and times are in the order of its transitions: each is recorded under the lock of the
-- lease's row, and its time is read there. Across names they are nearly so. Nodes of a Galera cluster draw
-- interleaved ids: there the tokens tell the order.
-- Where the kind depends on the clock it is found out before the time: a deadline that was over when a lease
-- was taken is over in the record. MySQL evaluates from left to right.
-- The time is that of the statement's start, in UTC whatever the connection's zone, and what has passed since.
--   id                the order of the records
--   at                this server's clock, after the row was locked; microseconds since 1970, UTC
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
    id bigint not null auto_increment primary key,
    at bigint not null,
    kind varchar(20) not null,
    name varbinary(255) null,
    token bigint null,
    session bigint null,
    grant_id bigint null,
    ticket bigint null,
    previous_session bigint null,
    ends_at bigint null,
    owner varbinary(255) null,
    host varchar(255) null,
    pid bigint null,
    program varchar(255) null,
    note varchar(1000) null,
    db_user varchar(255) not null,
    permits bigint null,
    reason varchar(1000) null,
    key rowlock_history_name (name, id)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

drop trigger if exists rowlock_history_granted;
create trigger rowlock_history_granted after insert on rowlock_lock for each row
if new.session is not null then
    insert into rowlock_history (at, kind, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, db_user)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'granted', new.name, new.token, new.session, new.grant_id, null, new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note, user())
; end if;

-- Counted holds, which have records of their own, raise the token of a row without a sole holder. An upgrade of one sets
-- grant_id; the end of its hold, or a change of its weight, is recorded with that.
drop trigger if exists rowlock_history_lease;
create trigger rowlock_history_lease after update on rowlock_lock for each row
if new.session is null and (old.session is not null or new.token <> old.token
                            or new.name <> old.name)
   and not (old.session is null and new.name = old.name and new.token > old.token
            and (old.used <> 0 or new.used <> 0 or new.capacity is not null)) then
    insert into rowlock_history (at, kind, name, token, session, grant_id, note, db_user)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            case
                when new.name <> old.name or new.token < old.token then 'altered'
                when old.session is null then 'altered'
                when new.used > old.used then 'released'
                when new.token > old.token then 'forced'
                when new.acquired_at is not null then 'expired'
                else 'released' end,
            new.name, new.token, old.session, old.grant_id, new.note, user())
; elseif new.session is null and old.session is null and (new.grant_id is null) <> (old.grant_id is null) then
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, db_user, permits)
    select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
               + timestampdiff(microsecond, now(6), sysdate(6)),
           if(new.grant_id is null, 'downgraded', 'upgraded'), new.name, if(new.grant_id is null, h.token, new.token),
           h.session, h.grant_id, h.deadline, h.note, user(), if(new.grant_id is null, h.weight, 1999999999)
      from rowlock_hold h where h.name = new.name and not (new.grant_id is null and h.token = new.token)
; elseif new.session is not null and (not (new.session <=> old.session) or new.token <> old.token
     or not (new.grant_id <=> old.grant_id) or new.name <> old.name) then
    insert into rowlock_history (kind, at, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, db_user)
    values (case
                when new.name <> old.name or new.token < old.token then 'altered'
                when new.token = old.token then 'altered'
                when old.session is null then 'granted'
                when new.session = old.session and new.grant_id <=> old.grant_id
                 and new.deadline <> old.deadline then 'renewed'
                when new.session = old.session and new.grant_id <=> old.grant_id then 'altered'
                when new.grant_id = old.grant_id then 'reclaimed'
                when old.deadline <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6))
                  or not exists (select 1 from rowlock_session s
                                  where s.id = old.session
                                    and s.ended = 0) then 'taken_over'
                else 'handed_over' end,
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            new.name, new.token, new.session,
            new.grant_id,
            case when not (new.session <=> old.session
                                                    and new.grant_id <=> old.grant_id)
                 then old.session end,
            new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note, user())
; end if;

drop trigger if exists rowlock_history_deleted;
create trigger rowlock_history_deleted after delete on rowlock_lock for each row
insert into rowlock_history (at, kind, name, token, session, grant_id, db_user)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'deleted', old.name, old.token, old.session, old.grant_id, user());

drop trigger if exists rowlock_history_queued;
create trigger rowlock_history_queued after insert on rowlock_ticket for each row
insert into rowlock_history (at, kind, name, session, grant_id, ticket, db_user, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'queued', new.name, new.session, new.grant_id, new.ticket, user(),
            new.weight);

drop trigger if exists rowlock_history_left;
create trigger rowlock_history_left after delete on rowlock_ticket for each row
insert into rowlock_history (at, kind, name, session, grant_id, ticket, db_user, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'left', old.name, old.session, old.grant_id, old.ticket, user(),
            old.weight);

drop trigger if exists rowlock_history_opened;
create trigger rowlock_history_opened after insert on rowlock_session for each row
insert into rowlock_history (at, kind, session, ends_at, owner, host, pid, program, db_user)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'session_opened', new.id, null, new.owner, new.host, new.pid, new.program, user());

drop trigger if exists rowlock_history_ended;
create trigger rowlock_history_ended after update on rowlock_session for each row
if new.ended <> old.ended then
    insert into rowlock_history (kind, at, session, ends_at, owner, host, pid, program, db_user)
    values (case when new.ended = 0 then 'altered' else
            case when old.expires_at <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6))
                 then 'session_expired' else 'session_ended' end end,
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            new.id, old.expires_at, new.owner, new.host, new.pid, new.program, user())
; end if;

drop trigger if exists rowlock_history_left_session;
create trigger rowlock_history_left_session after delete on rowlock_session for each row
if old.ended = 0 then
    insert into rowlock_history (kind, at, session, ends_at, owner, host, pid, program, db_user)
    values (case when old.expires_at <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6))
                 then 'session_expired' else 'session_ended' end,
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            old.id, old.expires_at, old.owner, old.host, old.pid, old.program, user())
; end if;

-- Counted holds: of semaphores and shared_mutexes. No trigger of a DELETE, nor of an INSERT with VALUES, reads another table:
-- there InnoDB locks what it reads. So who sweeps a hold of a session that has ended sets its deadline first: `expired`
-- is what is past that.
drop trigger if exists rowlock_history_permit_granted;
create trigger rowlock_history_permit_granted after insert on rowlock_hold for each row
insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, owner, host, pid, program, note,
                             db_user, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'granted', new.name, new.token, new.session, new.grant_id, new.deadline,
            (select s.owner from rowlock_session s where s.id = new.session),
            (select s.host from rowlock_session s where s.id = new.session),
            (select s.pid from rowlock_session s where s.id = new.session),
            (select s.program from rowlock_session s where s.id = new.session),
            new.note, user(), new.weight);

drop trigger if exists rowlock_history_permit;
create trigger rowlock_history_permit after update on rowlock_hold for each row
if new.session <> old.session or new.weight <> old.weight or new.token <> old.token or new.name <> old.name
   or new.grant_id <> old.grant_id or (new.deadline = 0 and not (old.deadline <=> 0)) then
    insert into rowlock_history (at, kind, name, token, session, grant_id, previous_session, ends_at,
                                 owner, host, pid, program, note, db_user, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
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
            new.note, user(), new.weight)
; end if;

drop trigger if exists rowlock_history_permit_ended;
create trigger rowlock_history_permit_ended after delete on rowlock_hold for each row
if not (old.deadline <=> 0) then
    insert into rowlock_history (kind, at, name, token, session, grant_id, ends_at, note, db_user,
                                 permits)
    values (case
                when old.deadline <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6))
                then 'expired'
                else 'released' end,
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            old.name, old.token, old.session, old.grant_id, old.deadline, old.note, user(),
            old.weight)
; end if;

drop trigger if exists rowlock_history_capacity_made;
create trigger rowlock_history_capacity_made after insert on rowlock_lock for each row
if new.capacity is not null then
    insert into rowlock_history (at, kind, name, token, db_user, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'capacity_set', new.name, new.token, user(), new.capacity)
; end if;

drop trigger if exists rowlock_history_capacity;
create trigger rowlock_history_capacity after update on rowlock_lock for each row
if new.capacity is not null and not (new.capacity <=> old.capacity) then
    insert into rowlock_history (at, kind, name, token, db_user, permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'capacity_set', new.name, new.token, user(), new.capacity)
; end if;

-- Who asks for a release, why and until when. A request changes the row of the hold, under its lock: who asks, why, or
-- the deadline. So each is recorded once, a repetition after a lost reply, which changes nothing, not again. Asked at
-- once: asked_by is NULL, and reason says who and why.
drop trigger if exists rowlock_history_asked;
create trigger rowlock_history_asked after update on rowlock_lock for each row
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
create trigger rowlock_history_permit_asked after update on rowlock_hold for each row
if new.requested = 1 and new.grant_id = old.grant_id and new.session = old.session
   and new.deadline > 1
   and not (old.requested = 1 and old.asked_by <=> new.asked_by and old.reason <=> new.reason
            and old.deadline <=> new.deadline) then
    insert into rowlock_history (at, kind, name, token, session, grant_id, ends_at, note, reason, db_user,
                                 permits)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
                + timestampdiff(microsecond, now(6), sysdate(6)),
            'asked', new.name, new.token, new.session, new.grant_id, new.deadline,
            coalesce(new.asked_by, new.reason), case when new.asked_by is not null then new.reason end, user(),
            new.weight)
; end if;
