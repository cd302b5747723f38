-- MariaDB only. Grants leases whose rows do not exist, by one statement and one commit: all, or none if
-- the floor has moved since the look or our session is over (no row changed), if one of the names is there by now (1062), or if
-- somebody is just inserting one (1205: it waits for nobody). The token is computed here, as in
-- insert_lease.
-- $1 session  $2 the floor that was seen  $3 how many  $4 … $19 names  $20 … $35 grant ids
-- $36 … $51 threads  $52 … $67 notes  $68 … $83 own deadlines in µs, or NULL
set statement innodb_lock_wait_timeout = 0 for
insert into rowlock_lease (name, token, session, grant_id, thread, note,
                           acquired_at, changed_at, deadline)
select elt(n.slot, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19),
       f.floor + 1, $1,
       elt(n.slot, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35),
       elt(n.slot, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51),
       elt(n.slot, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67),
       {now}, {now},
       {now} + cast(elt(n.slot, $68, $69, $70, $71, $72, $73, $74, $75, $76, $77, $78, $79,
                                  $80, $81, $82, $83) as signed)
  from rowlock_token_floor f
       join (select 1 as slot union all select 2 union all select 3 union all select 4
             union all select 5 union all select 6 union all select 7 union all select 8
             union all select 9 union all select 10 union all select 11 union all select 12
             union all select 13 union all select 14 union all select 15 union all select 16) n
         on n.slot <= $3
 where f.id = 1 and f.floor = $2
   and (select 1 from rowlock_session m where m.id = $1 and {live}) = 1
