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
create table if not exists rowlock_barrier (
    name varbinary(255) not null,
    generation bigint not null,
    kind smallint not null,
    latest bigint null,
    size bigint not null,
    loss_counts smallint not null default 0,
    arrived bigint not null default 0,
    departed bigint not null default 0,
    opened smallint not null default 0,
    closed smallint not null default 0,
    begun_by bigint null,
    changed_at bigint not null,
    primary key (name, generation)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row for each party of a round that may still change.
--   grant_id   random, made by the client: identifies one party
--   session    which must live: until the arrival at a latch, and until the departure from a double barrier
--   stage      0 registered, 1 arrived or entered, 2 departed, 3 withdrawn
create table if not exists rowlock_party (
    name varbinary(255) not null,
    grant_id bigint not null,
    generation bigint not null,
    session bigint not null,
    stage smallint not null,
    joined_at bigint not null,
    primary key (name, grant_id),
    key rowlock_party_round (name, generation)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
