-- Back to the table of 0001_initial.up.sql, made anew: before 3.35.5 dropping a column could damage a
-- file. Places in queues live for seconds and are lost.
drop table if exists rowlock_waiter;
create table rowlock_waiter (
    ticket integer primary key autoincrement,
    name text not null,
    session integer not null,
    grant_id integer not null unique,
    mode integer not null default 0,
    enqueued_at integer not null
);
create index rowlock_waiter_name_ticket on rowlock_waiter (name, ticket);
