-- The table of 0001_initial.up.sql, made anew: before 3.35.5 dropping a column could damage a file. The
-- history's triggers on it go with the old one: `rowlock migrate --history on` puts them back.
create table rowlock_session_before (
    id integer primary key check (id > 0),
    owner text not null,
    host text not null,
    pid integer not null,
    program text not null,
    ttl_us integer not null check (ttl_us > 0),
    expires_at integer not null,
    ended integer not null default 0,
    beats integer not null default 0,
    revision integer not null default 0,
    server_identity text not null default '',
    opened_at integer not null
);
insert into rowlock_session_before
select id, owner, host, pid, program, ttl_us, expires_at, ended, beats, revision, server_identity, opened_at
  from rowlock_session;
drop table rowlock_session;
alter table rowlock_session_before rename to rowlock_session;
