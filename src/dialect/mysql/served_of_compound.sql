-- MariaDB only: woken_for for a session that may have been woken before what it was woken for was
-- committed. It reads behind the lock that hand_over_compound holds until its COMMIT has returned, and
-- finds it. Others, which had to do without that lock, may be amid their COMMIT: woken_for. Our own lock on it, which a reading that was killed may have left, goes
-- first. If the lock cannot be had in a second this is an error, and the session looks by itself.
-- $1 my session  $2 … $17 names; may repeat
-- → grant id, token, what is left of its own deadline in µs, or NULL; whether it is known to be durable
begin not atomic
    declare v_session bigint default $1;
    do release_lock(concat('rowlock_serve_', v_session));
    if coalesce(get_lock(concat('rowlock_serve_', v_session), 1), 0) <> 1 then
        signal sqlstate '45000' set message_text = 'a hand-over takes its time';
    end if;
    select l.grant_id, l.token, l.deadline - {now},
           is_used_lock(concat('rowlock_told_', l.grant_id)) is not null
      from rowlock_lease l
     where l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
       and l.session = v_session;
    do release_lock(concat('rowlock_serve_', v_session));
end
