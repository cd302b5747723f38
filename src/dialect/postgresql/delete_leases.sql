-- Deletes idle rows under the settled floor, in some pages, a batch in the order they lie in.
-- By pages and not by names: each page is read, logged and written once, not once for each of its
-- rows, and the plan cannot be another when the table is large. A row never changes its place while
-- it is idle; one that was in use meanwhile moves, is not idle then, and another round sees it.
-- The lock (k) re-checks the row's own columns, so one that was granted since the statement began
-- stays, also if it was released again: changed_at is new. Rows that somebody has locked, an acquire
-- on its way or another reaper, are left alone, as are names with tickets. Once k has a row nobody
-- else can change it, so its ctid still names it in d. A row version that is younger than the
-- statement's snapshot is not found by d and stays.
-- An acquire that meets a row between its deletion and the commit waits for that, and inserts the
-- name anew with a token above the floor, which no statement still runs from before (settle_floor).
-- The commit is asynchronous: after a crash of the server rows may be there again, free, with tokens
-- under the floor, and are deleted once more. A later grant of the name is durable and with it, since
-- the log has an order, the deletion before it.
-- $1 batch  $2 retention in µs  $3 page  $4 row in it, after which  $5 before which page
-- → how many went; page and row of the last that was looked at, NULL if there is no more in these pages
with k as materialized (
         select l.ctid as place from rowlock_lease l
          where l.ctid > ('(' || $3::bigint::text || ',' || $4::bigint::text || ')')::tid
            and l.ctid < ('(' || $5::bigint::text || ',0)')::tid
            and l.session is null and l.token + (l.successor is not null)::int
                <= (select f.settled from rowlock_token_floor f)
            and l.changed_at <= clock_timestamp() - $2::bigint::float8 * interval '1 microsecond'
            and not exists (select from rowlock_waiter w where w.name = l.name)
          order by l.ctid limit $1::bigint for update of l skip locked),
     c as materialized (
         select set_config('synchronous_commit', 'off', true)),
     d as (
         delete from rowlock_lease l using c
          where l.ctid = any (array(select k.place from k)) returning 1)
select (select count(*) from d), {last_of_k}
