-- statement multi_look
-- Reads several locks and the first entry that can be served of each of their queues, in one snapshot; locks nothing. A
-- whole lock is taken by compare-and-set on the token read here (`take`), a part by take_permits, or use_permits with an
-- entry, which judge the room again on the row that they have locked: all in one transaction with the deletion of the
-- entries and the holds of the parts, or none.
-- $1 my session  $2 … $17 names; may repeat
-- → the floor, whether my session lives, name, token, whether it is free, the holder's session if that has
--   expired, the remaining time of the holder in µs, the ticket and grant id of the first entry, the capacity of a
--   semaphore; whether counted holds are in the way; the room for a part (0: a sole holder is in the way). A name without a
--   row does not come back; one row with NULLs if none has a row.
select f.floor, (select count(*) from rowlock_session m where m.id = $1 and {live}),
       l.name, l.token, {free},
       case when s.expires_at <= {now} and not {free} then l.session end,
       case when {free} then null else {until(coalesce({least}(s.expires_at, l.deadline), s.expires_at))} end,
       (select w.ticket from rowlock_ticket w {in_ticket_order} {join} rowlock_session m
         where w.name = l.name and m.id = w.session and {waits} order by w.ticket limit 1),
       (select w.grant_id from rowlock_ticket w {in_ticket_order} {join} rowlock_session m
         where w.name = l.name and m.id = w.session and {waits} order by w.ticket limit 1),
       l.capacity, l.used > 0, case when l.session is null then {room(l)} else 0 end
  from rowlock_token_floor f
       left join rowlock_lock l {by_key}
              on l.name in ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
       left join rowlock_session s on s.id = l.session
 where f.id = 1
 order by l.name
