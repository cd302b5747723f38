-- Latches and double barriers: points that several processes reach together.
--
-- One row for each round, which is a generation of a name; and one for the name itself, with generation 0.
--   name         of the latch or barrier; a lease of that name has nothing to do with it
--   generation   from 1 on; of one name each is greater than all before
--   kind         0 a latch, 1 a double barrier
--   latest       of the row of a name: its latest generation. A client that begins a round has this row locked
--   size         how many arrivals open it
--   loss_counts  what becomes of it if the session of a party ends too early. 0: it breaks, 1: that counts as an arrival
--   arrived      how many parties have arrived, or entered
--   departed     of a double barrier: how many have left it
--   opened       0 pending, 1 open, 2 broken; does not change again
--   closed       of a double barrier, likewise: whether all have left it
--   begun_by     the id of the call that began it
-- A client that changes a round has its row locked.
create table rowlock_barrier (
    name text not null,
    generation integer not null check (generation >= 0),
    kind integer not null check (kind in (0, 1)),
    latest integer,
    size integer not null,
    loss_counts integer not null default 0,
    arrived integer not null default 0,
    departed integer not null default 0,
    opened integer not null default 0,
    closed integer not null default 0,
    begun_by integer,
    changed_at integer not null,
    primary key (name, generation)
) without rowid;

-- One row for each party of a round that may still change.
--   grant_id   random, made by the client: identifies one party
--   session    which must live: until the arrival at a latch, and until the departure from a double barrier
--   stage      0 registered, 1 arrived or entered, 2 departed, 3 withdrawn
create table rowlock_party (
    name text not null,
    grant_id integer not null,
    generation integer not null,
    session integer not null,
    stage integer not null,
    joined_at integer not null,
    primary key (name, grant_id)
) without rowid;
create index rowlock_party_round on rowlock_party (name, generation);
