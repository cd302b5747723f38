-- A column that keeps the greatest fencing token a row was written with, for fenced_table. Rows that
-- exist begin at 0, below every token.
-- {table} {column}
alter table {table} add column {column} bigint not null default 0;

-- trigger
-- Refuses a write whose token is smaller than the row's, by whatever program. A write that does not
-- name the column passes: name it in each.
-- {trigger_table} {column} {trigger}
create trigger {trigger} before update on {trigger_table} for each row
if new.{column} < old.{column} then
    signal sqlstate '45000'
        set message_text = 'rowlock: a write with an older fencing token was refused';
end if;
