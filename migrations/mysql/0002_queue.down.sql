-- Back to the table of 0001_initial.up.sql. Places in queues live for seconds and are lost.
drop table if exists rowlock_waiter;
create table if not exists rowlock_waiter (
    ticket bigint not null auto_increment primary key,
    name varbinary(255) not null,
    session bigint not null,
    grant_id bigint not null,
    mode smallint not null default 0,
    enqueued_at bigint not null,
    unique key rowlock_waiter_grant_id (grant_id),
    key rowlock_waiter_name_ticket (name, ticket)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
