-- A column that keeps the greatest fencing token a row was written with, for fenced_table. Rows that
-- exist begin at 0, below every token. PostgreSQL 11 and later add it without rewriting the table.
-- {table} {column}
alter table {table} add column {column} bigint not null default 0;

-- trigger
-- Refuses a write whose token is smaller than the row's, by whatever program. A write that does not
-- name the column passes: name it in each.
-- {trigger_table} {column} {function} {trigger} {mark}
create function {function}() returns trigger language plpgsql as {mark}
begin
    if new.{column} operator(pg_catalog.<) old.{column} then
        raise exception 'rowlock: a write with an older fencing token was refused'
            using errcode = 'check_violation';
    end if;
    return new;
end
{mark};

create trigger {trigger} before update on {trigger_table}
    for each row execute function {function}();
