-- MariaDB only, in one round trip what next_waiter, take, delete_waiter and release do in five: gives
-- a lease, if it is still this very grant, to the first live waiter, or frees it if nobody waits; then
-- ends the sleep of the session that was served, unless it is ours.
--
-- The locks are those of the five, in their order: the look reads and locks nothing; the lease's row,
-- by compare-and-set on the token that the look saw; then the ticket by its key. Who deletes a ticket
-- waits for nothing more. Nobody hears of a hand-over that is not durable: COMMIT is over before KILL.
-- KILL is a hint. What it says (there is no such connection; it is another user's) is no failure of
-- what is committed. Why it hits no stranger: strategy/wake_up.hpp.
--
-- There is no handler that rolls back: it would not run for a statement that is killed or out of time.
-- After any error the client sends ROLLBACK; if it is gone the server does it.
-- What is written comes from variables: in the binary log a placeholder would have no value.
-- $1 name  $2 my session  $3 grant id
-- → 1 = done, 0 = somebody was faster: look again, NULL = the floor's row is missing; whether the lease
--   was this grant; the session that was served, its grant id, its token, or NULLs; whether its sleep
--   was ended
begin not atomic
    declare v_name varbinary(255) default $1;
    declare v_session bigint default $2;
    declare v_grant_id bigint default $3;
    declare v_done, v_changed, v_woken tinyint default 0;
    declare v_floor, v_next, v_token, v_ticket, v_served, v_served_grant, v_deadline bigint;
    declare v_thread varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare v_note varchar(1000) character set utf8mb4 collate utf8mb4_bin;

    select f.floor, greatest(l.token, f.floor) + 1, l.token,
           w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us
      into v_floor, v_next, v_token,
           v_ticket, v_served, v_served_grant, v_thread, v_note, v_deadline
      from rowlock_token_floor f
           left join rowlock_lease l on l.name = $1 and l.session = $2 and l.grant_id = $3
           left join {first_waiter} on 1 = 1
     where f.id = 1;

    if v_floor is null then
        set v_done = null;
    elseif v_token is not null and v_ticket is not null then
        start transaction;
        update rowlock_lease
           set token = v_next, session = v_served, grant_id = v_served_grant, thread = v_thread,
               note = v_note, acquired_at = {now}, changed_at = {now}, deadline = {now} + v_deadline
         where name = v_name and token = v_token;
        if row_count() = 1 then
            delete from rowlock_waiter where ticket = v_ticket;
            set v_done = row_count();
        end if;
        if v_done = 1 then
            commit;
            set v_changed = 1;
            if v_served <> v_session then
                begin
                    declare continue handler for sqlexception set v_woken = 0;
                    set v_woken = 1;
                    kill query is_used_lock(concat('rowlock_wake_', v_served));
                end;
            end if;
        else
            rollback;
        end if;
    else
        update rowlock_lease
           set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
               deadline = null, changed_at = {now}
         where name = v_name and session = v_session and grant_id = v_grant_id;
        set v_changed = row_count(), v_done = 1, v_served = null;
    end if;
    select v_done, v_changed, v_served, v_served_grant, v_next, v_woken;
end
