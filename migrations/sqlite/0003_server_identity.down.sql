-- The table of 0001_initial.up.sql, made anew: before 3.35.5 dropping a column could damage a file.
create table rowlock_token_floor_before (
    id integer primary key check (id = 1),
    floor integer not null default 0,
    settled integer not null default 0,
    raised_at integer not null,
    check (settled <= floor)
);
insert into rowlock_token_floor_before select id, floor, settled, raised_at from rowlock_token_floor;
drop table rowlock_token_floor;
alter table rowlock_token_floor_before rename to rowlock_token_floor;
