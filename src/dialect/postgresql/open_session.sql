-- Opens a session. The id is random and made by the client; if the reply is lost the client opens
-- another and this row, referenced by nothing, expires.
-- $1 id  $2 owner  $3 host  $4 pid  $5 program  $6 ttl in µs
insert into rowlock_session (id, owner, host, pid, program, ttl_us, expires_at, opened_at)
values ($1::bigint, $2, $3, $4::bigint, $5, $6::bigint,
        clock_timestamp() + $6::bigint * interval '1 microsecond', clock_timestamp())
