-- A column that keeps the greatest fencing token a row was written with, for fenced_table. Rows that
-- exist begin at 0, below every token.
-- {table} {column}
alter table {table} add column {column} integer not null default 0;

-- trigger
-- Refuses a write whose token is smaller than the row's, by whatever program. A write that does not
-- name the column passes: name it in each.
-- {trigger_table} {column} {trigger}
create trigger {trigger} before update on {trigger_table} for each row when new.{column} < old.{column}
begin
    select raise(abort, 'rowlock: a write with an older fencing token was refused');
end;
