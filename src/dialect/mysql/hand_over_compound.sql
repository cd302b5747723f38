-- MariaDB only, in one round trip what next_waiter, take, delete_waiter and release do in five: gives
-- a lease, if it is still this very grant, to the first live waiter, or frees it if nobody waits; and
-- ends the sleep of the session that was served, unless it is ours (strategy/wake_up.hpp).
--
-- The locks are those of the five, in their order: the look reads and locks nothing; the lease's row,
-- whose new token is computed under that lock; then the ticket by its key. Who deletes a ticket waits
-- for nothing more. No session's row is touched, so no heartbeat waits.
-- The lease's row may have been waited for, longer than the waiter's session lived: that is looked at once
-- more behind it, by a plain read.
-- The floor may have risen since it was read: nothing is deleted below a floor that is not settled.
--
-- The sleeper is woken before the COMMIT, so that both take their time together. What it reads must
-- be durable, and InnoDB gives its row locks away before the log is on the disk: so it reads behind a
-- user-level lock, rowlock_serve_…, which we hold until COMMIT has returned. If that lock is taken
-- (another serves the same session, which is reading, or reads another way) it is woken afterwards.
-- Once COMMIT has returned we say so (rowlock_told_…, woken_for.sql), before that lock is given up.
-- If COMMIT took so long that the sleeper may have given up, it is woken again.
-- KILL is a hint. What it says (there is no such connection; it is another user's) is no failure.
--
-- There is no handler that rolls back: it would not run for a statement that is killed or out of time.
-- After any error the client ends the transaction; if it is gone the server does it.
-- The first ROLLBACK is for a driver that sends this again after an error (the server wants statements
-- prepared anew): START TRANSACTION would commit what the first attempt had begun.
-- What is written comes from variables: in the binary log a placeholder would have no value.
-- $1 name  $2 my session  $3 grant id  $4 whether sleepers can be woken here: 1, or 0 on Galera
-- $5 the grant id that this connection has said it of before, or 0
-- → 1 = done, 0 = the waiter has gone meanwhile: again, NULL = the floor's row is missing; whether
--   the lease was this grant; the session that was served, its grant id, its token, or NULLs; whether
--   its sleep was ended; its wake-up address, secret and mailbox
begin not atomic
    declare v_name varbinary(255) default $1;
    declare v_session bigint default $2;
    declare v_grant_id bigint default $3;
    declare v_wakes tinyint default $4;
    declare v_told bigint default $5;
    declare v_done, v_changed, v_lives, v_early, v_woken tinyint default 0;
    declare v_floor, v_token, v_ticket, v_served, v_served_grant, v_deadline, v_began, v_address, v_mailbox bigint;
    declare v_secret varchar(32) character set utf8mb4 collate utf8mb4_bin;
    declare v_thread varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare v_note varchar(1000) character set utf8mb4 collate utf8mb4_bin;

    rollback;
    select f.floor into v_floor from rowlock_token_floor f where f.id = 1;
    select w.ticket, w.session, w.grant_id, w.thread, w.note, w.deadline_us, m.wake_address,
           m.wake_secret, m.mailbox
      into v_ticket, v_served, v_served_grant, v_thread, v_note, v_deadline, v_address, v_secret,
           v_mailbox
      {first_waiter};

    if v_floor is null then
        set v_done = null;
    elseif v_ticket is null then
        update rowlock_lease
           set session = null, grant_id = null, thread = null, note = null, acquired_at = null,
               deadline = null, changed_at = {now}
         where name = v_name and session = v_session and grant_id = v_grant_id;
        set v_changed = row_count(), v_done = 1;
    else
        start transaction;
        update rowlock_lease
           set token = last_insert_id(greatest(token, v_floor) + 1),
               session = v_served, grant_id = v_served_grant, thread = v_thread, note = v_note,
               acquired_at = {now}, changed_at = {now}, deadline = {now} + v_deadline
         where name = v_name and session = v_session and grant_id = v_grant_id;
        set v_changed = row_count();
        if v_changed = 1 then
            set v_token = last_insert_id();
            select count(*) into v_lives from rowlock_session m where m.id = v_served and {live};
            delete from rowlock_waiter where ticket = v_ticket;
            set v_done = row_count() * v_lives;
        end if;
        if v_done = 1 then
            if v_wakes = 1 and v_served <> v_session then
                set v_early = coalesce(get_lock(concat('rowlock_serve_', v_served), 0), 0),
                    v_began = {now};
                if v_early = 1 then
                    begin
                        declare continue handler for sqlexception set v_woken = 0;
                        set v_woken = 1;
                        kill query is_used_lock(concat('rowlock_wake_', v_served));
                    end;
                end if;
            end if;
            commit;
            if v_wakes = 1 then
                do release_lock(concat('rowlock_told_', v_told));
                do get_lock(concat('rowlock_told_', v_served_grant), 0);
            end if;
            if v_early = 1 then
                do release_lock(concat('rowlock_serve_', v_served));
            end if;
            if v_wakes = 1 and v_served <> v_session
               and (v_early = 0 or {now} - v_began > 500000) then
                begin
                    declare continue handler for sqlexception set v_woken = 0;
                    set v_woken = 1;
                    kill query is_used_lock(concat('rowlock_wake_', v_served));
                end;
            end if;
        else
            rollback;
            set v_done = 1 - v_changed, v_changed = 0, v_served = null;
        end if;
    end if;
    select v_done, v_changed, v_served, v_served_grant, v_token, v_woken, v_address, v_secret,
           v_mailbox;
end
