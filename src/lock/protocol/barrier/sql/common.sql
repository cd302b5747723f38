-- Latches and double barriers on MySQL and SQLite. The row of a name, with generation 0, is the lock of its rounds and
-- their parties: a transaction that changes one of those runs lock_rounds first, then look_at_round, and decides on its
-- answer. So the changes of a name have an order, and what a transaction has read stays until its commit.

-- statement lock_rounds
-- Locks the rounds of a name until the commit. Ordered by the row of the name: another client that runs this waits. No
-- row: nothing has begun yet, or the reaper has deleted the name. It always changes the row: so the commit is confirmed
-- after those of earlier attempts, whatever this one finds.
-- $1 name
update rowlock_barrier set revision = revision + 1, changed_at = {now}
 where name = $1::text and generation = 0

-- statement look_at_round
-- A round, and of its parties the one that is asked for and those that are needed alive and have no live session. Of a
-- generation, or for 0 of the round of that party, or of the latest; 0 again if the name has a row and no round.
-- Alone it is a read of one moment, on which no change may rest. After lock_rounds nobody changes what it reads: but a
-- session may expire or end later, and is lost for the next to look. One that has ended stays ended.
-- $1 name  $2 generation, or 0  $3 id of a party, or 0
-- → generation, kind, size, whether losses count, arrived, departed, opened, closed, the call that began it, how many
--   parties have not arrived; a party, its session, its stage, that session: 0 lives, 1 has expired, 2 has ended
select b.generation, b.kind, b.size, b.loss_counts, b.arrived, b.departed, b.opened, b.closed, b.begun_by,
       (select count(*) from rowlock_party r where r.name = b.name and r.generation = b.generation and r.stage = 0),
       p.grant_id, p.session, p.stage,
       case when m.id is null or m.ended then 2 when m.expires_at <= {now} then 1 else 0 end
  from rowlock_barrier b
       left join (rowlock_party p left join rowlock_session m on m.id = p.session)
              on p.name = b.name and p.generation = b.generation
             and (p.grant_id = $3::bigint
                  or p.stage <= b.kind and (m.id is null or m.ended or m.expires_at <= {now}))
 where b.name = $1::text
   and b.generation = coalesce(nullif($2::bigint, 0),
                               (select q.generation from rowlock_party q
                                 where q.name = $1::text and q.grant_id = $3::bigint),
                               (select max(x.generation) from rowlock_barrier x where x.name = $1::text))

-- statement insert_round
-- Begins a round. Ordered by lock_rounds, so that nobody begins another of its number. Of generation 0: makes the row
-- of the name, in a commit before its first lock_rounds; if another client has made it: a unique violation.
-- $1 name  $2 generation  $3 kind  $4 size  $5 whether losses count  $6 arrived  $7 opened  $8 by which call
insert into rowlock_barrier (name, generation, kind, size, loss_counts, arrived, opened, begun_by, changed_at)
values ($1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, {now})

-- statement write_round
-- The state of a round. Ordered by lock_rounds.
-- $1 name  $2 generation  $3 arrived  $4 departed  $5 opened  $6 closed  $7 size  $8 whether losses count
update rowlock_barrier set arrived = $3::bigint, departed = $4::bigint, opened = $5::bigint, closed = $6::bigint,
       size = $7::bigint, loss_counts = $8::bigint, changed_at = {now}
 where name = $1::text and generation = $2::bigint

-- statement insert_party
-- Adds a party to a round, if its session lives. Ordered by lock_rounds: if the session ends later, a later transaction
-- finds this party. Who has run lock_rounds and does not find it knows that no earlier attempt will still add it.
-- $1 name  $2 generation  $3 its id  $4 session  $5 stage
insert into rowlock_party (name, generation, grant_id, session, stage, joined_at)
select $1::text, $2::bigint, $3::bigint, m.id, $5::bigint, {now}
  from rowlock_session m where m.id = $4::bigint and {live}

-- statement set_party_stage
-- Ordered by lock_rounds.
-- $1 name  $2 its id  $3 stage
update rowlock_party set stage = $3::bigint where name = $1::text and grant_id = $2::bigint

-- statement forget_parties
-- The parties of a round that needs them no more. Those that have withdrawn stay for a time, so that a call whose reply
-- was lost finds that it has withdrawn. Ordered by lock_rounds.
-- $1 name  $2 generation  $3 for how long, in µs; below 0: none stays
delete from rowlock_party
 where name = $1::text and generation = $2::bigint
   and (stage <> 3 or joined_at <= {now} - {span($3)})

-- statement old_rounds
-- Rounds, and rows of names, that have not changed for so long. Only reads: whoever deletes one compares again.
-- $1 after which name  $2 and generation  $3 how long, in µs  $4 how many
select name, generation from rowlock_barrier
 where name >= $1::text and (name > $1::text or generation > $2::bigint)
   and changed_at <= {now} - {span($3)}
 order by name, generation limit $4::bigint

-- statement delete_round
-- A round, or the row of a name without rounds, that has not changed for so long. Ordered by lock_rounds. That a round
-- has ended is final: the caller may have read it before.
-- $1 name  $2 generation  $3 how long, in µs
delete from rowlock_barrier
 where name = $1::text and generation = $2::bigint
   and changed_at <= {now} - {span($3)}
