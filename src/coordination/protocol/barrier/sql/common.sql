-- statement barrier_name
-- Of which kind a name is, and its latest round. Reads only.
-- $1 name
-- → kind, latest generation (0: none yet)
select kind, latest from rowlock_barrier where name = $1 and generation = 0

-- statement make_barrier_name
-- Makes the row that orders the rounds of a name. If it exists by now: a unique violation.
-- $1 name  $2 kind
insert into rowlock_barrier (name, generation, kind, latest, size, changed_at) values ($1, 0, $2, 0, 0, {now})

-- statement look_at_round
-- The state of a round, and of its parties. Reads only.
-- $1 name  $2 generation
-- → generation, kind, size, whether losses count, arrived, departed, opened, closed, how many parties are needed alive and
--   have no live session, how many are registered and have not arrived
select b.generation, b.kind, b.size, b.loss_counts, b.arrived, b.departed, b.opened, b.closed,
       (select count(*) from rowlock_party p
         where p.name = $1 and p.generation = $2 and p.stage < b.kind + 1
           and not exists (select 1 from rowlock_session m
                            where m.id = p.session and m.ended = 0 and m.expires_at > {now})),
       (select count(*) from rowlock_party p where p.name = $1 and p.generation = $2 and p.stage = 0)
  from rowlock_barrier b where b.name = $1 and b.generation = $2

-- statement insert_round
-- Begins a round. The transaction has locked the row of the name.
-- $1 name  $2 generation  $3 kind  $4 size  $5 whether losses count  $6 by which id
insert into rowlock_barrier (name, generation, kind, size, loss_counts, begun_by, changed_at)
values ($1, $2, $3, $4, $5, $6, {now})

-- statement set_latest_round
-- The latest round of a name. The transaction has locked this row.
-- $1 name  $2 generation
update rowlock_barrier set latest = $2, changed_at = {now} where name = $1 and generation = 0

-- statement write_round
-- Writes the state of a round. The transaction has locked this row, and read it since.
-- $1 name  $2 generation  $3 arrived  $4 departed  $5 opened  $6 closed  $7 size  $8 whether losses count
update rowlock_barrier set arrived = $3, departed = $4, opened = $5, closed = $6, size = $7, loss_counts = $8, changed_at = {now}
 where name = $1 and generation = $2

-- statement find_party
-- In which round a party is, and its stage.
-- $1 name  $2 its id
select generation, stage from rowlock_party where name = $1 and grant_id = $2

-- statement insert_party
-- Adds a party to a round, if its session lives. The transaction has locked the round: a later transaction that finds the
-- session over finds this party as well.
-- $1 name  $2 generation  $3 its id  $4 session  $5 stage
insert into rowlock_party (name, generation, grant_id, session, stage, joined_at)
select $1, $2, $3, m.id, $5, {now} from rowlock_session m where m.id = $4 and {live}

-- statement set_party_stage
-- The transaction has locked the round.
-- $1 name  $2 its id  $3 stage
update rowlock_party set stage = $3 where name = $1 and grant_id = $2

-- statement delete_parties
-- The round is over: its parties read what they want to know there. But those that have withdrawn stay, so that one whose
-- reply was lost finds that it has. The transaction has locked the round.
-- $1 name  $2 generation
delete from rowlock_party where name = $1 and generation = $2 and stage <> 3

-- statement forget_withdrawn
-- Parties that withdrew so long ago that no call still asks whether they did. The transaction has locked the round.
-- $1 name  $2 generation
delete from rowlock_party
 where name = $1 and generation = $2 and stage = 3 and joined_at <= {now} - 600000000

-- statement delete_all_parties
-- The transaction has locked the round, and deletes it.
-- $1 name  $2 generation
delete from rowlock_party where name = $1 and generation = $2

-- statement lost_parties
-- The parties whose sessions have ended, or are gone: for good. Sessions that have expired are ended before. The
-- transaction has locked the round.
-- $1 name  $2 generation  $3 the first stage that needs no live session
-- → id, stage
select p.grant_id, p.stage from rowlock_party p
 where p.name = $1 and p.generation = $2 and p.stage < $3
   and not exists (select 1 from rowlock_session m where m.id = p.session and m.ended = 0)

-- statement expired_parties
-- The sessions of parties that have expired and are not ended. Reads only.
-- $1 name  $2 generation  $3 the first stage that needs no live session
select distinct p.session from rowlock_party p {join} rowlock_session m
 where p.name = $1 and p.generation = $2 and p.stage < $3
   and m.id = p.session and m.ended = 0 and m.expires_at <= {now}

-- statement find_begun_round
-- The round that a call began whose reply was lost.
-- $1 name  $2 by which id
select generation from rowlock_barrier where name = $1 and begun_by = $2

-- statement names_with_old_rounds
-- Names with rows that have not changed for so long. Reads only.
-- $1 after which name  $2 how long, in µs  $3 how many names
select distinct name from rowlock_barrier
 where name > $1 and changed_at <= {now} - $2
 order by name limit $3

-- statement old_rounds
-- The rounds of a name that have not changed for so long. The transaction has locked the row of the name.
-- $1 name  $2 how long, in µs
select generation from rowlock_barrier
 where name = $1 and generation > 0 and changed_at <= {now} - $2
 order by generation

-- statement delete_round
-- A round that is over, or the row of a name without rounds. The transaction has locked it.
-- $1 name  $2 generation
delete from rowlock_barrier where name = $1 and generation = $2

-- statement any_round
-- Whether a name has a round. The transaction has locked the row of the name: none is begun.
-- $1 name
select 1 from rowlock_barrier where name = $1 and generation > 0 limit 1
