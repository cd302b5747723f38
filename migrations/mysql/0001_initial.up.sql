-- The tables of rowlock. MySQL 8 and MariaDB 10.5 or newer.
--
-- Tables are not made in a transaction here, so every statement can be repeated: a migration that
-- was cut off is completed by running it again.
--
-- Times are microseconds since 1970, UTC, by the clock of this server, which no time zone and no
-- daylight saving can bend. The statement that decides on one writes it, so none has a default.
--
-- What is compared is VARBINARY: byte by byte, no collation, trailing spaces count. Other text is
-- utf8mb4. No column that changes has an index: InnoDB would lock its entries too, and deadlock.

-- One row for each client. All its holds live and die with it.
--   id                  random, made by the client, above 0
--   owner               stable name of the process among its restarts, or random. Reclaim looks it
--                       up: a scan of some thousand rows, once per start of a process, needs no
--                       index
--   host, pid, program  for display
--   ttl_us              each heartbeat moves expires_at so far ahead, in microseconds
--   expires_at          past it anyone may end the session
--   ended               1 for ever, once the session has ended: it frees all its holds
--   beats               heartbeats so far: changes even if the clock stood still
--   revision            raised when a lease of this session was taken by force
--   server_identity     the server that the session last wrote to: differs after a promotion
--   opened_at           for display
--   wake_address        random: names its mailbox, and tells nothing else
--   wake_secret         128 random bits in hexadecimal; never sent. What is told to a session outside
--                       the tables carries a proof made with it, so that only those who can read
--                       this row can make it believe anything (docs/adr/0032)
--   mailbox             the network namespace in which its mailbox lies; null = it has none
create table if not exists rowlock_session (
    id bigint not null primary key,
    owner varbinary(255) not null,
    host varchar(255) not null,
    pid bigint not null,
    program varchar(255) not null,
    ttl_us bigint not null,
    expires_at bigint not null,
    ended tinyint not null default 0,
    beats bigint not null default 0,
    revision bigint not null default 0,
    server_identity varchar(255) not null default '',
    opened_at bigint not null,
    wake_address bigint not null default 0,
    wake_secret varchar(32) not null default '',
    mailbox bigint null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row for each name that was ever locked and has not been reaped, and for each semaphore. It has the sole holder of
-- the lock, who has all of it, and counts the others: a name is free, or held by one, or by counted holds. The sole
-- holder has ended if its session is missing or ended, or its deadline has passed.
--   name          1 to 255 bytes of UTF-8, compared byte by byte
--   token         fencing token of the latest grant; only ever grows
--   session       the sole holder; null = there is none
--   used          the sum of the weights of its rows in rowlock_hold, in every committed state. Never null: `null + n <=
--                 capacity` is null, a queue that stops
--   capacity      how many permits a semaphore has; null: the lock is none, and its counted holds are modes
--   grant_id      random, made by the client: identifies one grant
--                 without a sole holder: of an upgrade. The one counted hold has all of the lock then; a client that
--                 reclaims that hold adds 1
--   thread, note  of the holder, for display
--   acquired_at   when it was granted, for display and for policies
--   changed_at    latest grant or release; the reaper judges idleness by it
--   deadline      the grant ends then, heartbeats or not; null = never
--   heir          grant_id of the candidate in whose favour the leader of an election steps down: it
--                 leads whatever its priority
--   asked_for     grant_id of the hold whose release was asked for within a time, which is its
--                 deadline; that of another grant means nothing
--   asked_by, reason  who asks, and why, for display
create table if not exists rowlock_lock (
    name varbinary(255) not null primary key,
    token bigint not null,
    session bigint null,
    grant_id bigint null,
    thread varchar(255) null,
    note varchar(1000) null,
    acquired_at bigint null,
    changed_at bigint not null,
    deadline bigint null,
    heir bigint null,
    asked_for bigint null,
    asked_by varchar(1000) null,
    reason varchar(1000) null,
    used bigint not null default 0,
    capacity bigint null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row for each entry in a queue: of a lease, a semaphore or a shared_mutex. It lives as long as its session.
--   name          of the lock that is waited for
--   ticket        the lowest is served first; one sequence for all queues, which begins at 10^12: lower ones are for
--                 upgrades, which come before all. Galera nodes hand out interleaved tickets: there the order is nearly
--                 that of arrival
--   session       who waits. The index is for a client that looks at all its entries at once, for the
--                 deletion of its session, and for whoever follows a circle of waiters from a holder
--                 to what that waits for
--   grant_id      becomes the grant_id of the lease or hold. Delete rows by ticket: deleting by this key
--                 deadlocks with inserts
--   weight        how many permits are waited for, or the weight of a mode; null: it waits for all of the lock
--   base          of an upgrade: the grant_id of the hold that it makes exclusive
--   members       in how many queues the request has an entry; the tickets of one request
--                 follow each other, and none of them is served alone
--   priority      of a candidate in an election; the greatest leads first
--   enqueued_at   for display
--   thread, note  of the waiter; copied to what it is granted
--   deadline_us   the grant ends so long after it was made; null = never
--   blocks        labels of holds, other than those of `thread`, that are not released before this
--                 entry is served, separated by |, for the search for deadlocks; null = none
--   waits_until   the time limit of its caller: the entry is not served after it (docs/adr/0060);
--                 null = it has none
create table if not exists rowlock_ticket (
    ticket bigint not null auto_increment primary key,
    name varbinary(255) not null,
    session bigint not null,
    grant_id bigint not null,
    weight bigint null,
    base bigint null,
    members smallint not null default 1,
    priority smallint not null default 0,
    enqueued_at bigint not null,
    thread varchar(255) null,
    note varchar(1000) null,
    deadline_us bigint null,
    blocks text null,
    waits_until bigint null,
    unique key rowlock_ticket_grant_id (grant_id),
    key rowlock_ticket_name_ticket (name, ticket),
    key rowlock_ticket_session_thread (session, thread)
) engine = InnoDB auto_increment = 1000000000000 row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row for each counted hold: permits of a semaphore, or a mode of a shared_mutex: shared weighs 1, upgradeable 10^9,
-- exclusive 2·10^9 - 1, for which a lock without a capacity has room. So any number of shared holds fit beside each other
-- and beside one upgradeable hold, two upgradeable holds do not fit, and nothing fits beside an exclusive hold. It is deleted when the hold ends, in the transaction that lowers `used`.
--   name, grant_id  grant_id is random, made by the client: identifies one hold
--   session         the holder. The index is for the end of a session
--   weight          how many permits this hold has, or the weight of its mode
--   token           of this grant
--   thread, note    of the holder, for display
--   acquired_at     when it was granted, for display and for policies
--   deadline        the hold ends then, heartbeats or not; null = never
--   requested       1: another client has asked for the release of this hold; its deadline is no later than its
--                   session's end
--   asked_by, reason  who asks, and why, for display
create table if not exists rowlock_hold (
    name varbinary(255) not null,
    grant_id bigint not null,
    session bigint not null,
    weight bigint not null,
    token bigint not null,
    thread varchar(255) null,
    note varchar(1000) null,
    acquired_at bigint not null,
    deadline bigint null,
    requested smallint not null default 0,
    asked_by varchar(1000) null,
    reason varchar(1000) null,
    primary key (name, grant_id),
    key rowlock_hold_session (session)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Runs of work that is to be done once a period, or not too often. The lease of the same name makes them exclusive; one row
-- for each name, which stays.
--   name        of the lease
--   token       of the lease under which the latest run began: that run alone may end it
--   began_at    of the latest run
--   finished    0: the latest run has not reported that it finished
--   period      the greatest that a finished run had, compared byte by byte; null: none had any
--   ended_at    when a run finished last; null: none has
--   not_before  no run begins before that, whatever became of the latest; null: it may
create table if not exists rowlock_run (
    name varbinary(255) not null primary key,
    token bigint not null,
    began_at bigint not null,
    finished smallint not null default 0,
    period varbinary(255) null,
    ended_at bigint null,
    not_before bigint null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Latches and double barriers: points that several processes reach together. One row for each round, which is a
-- generation of a name; and one for the name itself, with generation 0. A client that changes a round or its parties has
-- that row locked.
--   name         of the latch or barrier; a lease of that name has nothing to do with it
--   generation   from 1 on; of one name each is greater than all before
--   kind         0 a latch, 1 a double barrier
--   revision     of the row of a name: rises with each change of its rounds, which that row's lock orders
--   size         how many arrivals open it
--   loss_counts  what becomes of it if the session of a party ends too early. 0: it breaks, 1: that counts as an arrival
--   arrived      how many parties have arrived, or entered
--   departed     of a double barrier: how many have left it
--   opened       0 pending, 1 open, 2 broken; does not change again
--   closed       of a double barrier, likewise: whether all have left it
--   begun_by     the id of the call that began it
--   changed_at   the reaper judges idleness by it
create table if not exists rowlock_barrier (
    name varbinary(255) not null,
    generation bigint not null,
    kind smallint not null,
    revision bigint not null default 0,
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
--   joined_at  a party that withdrew is forgotten some minutes after it
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

-- What an operator demands of a name, whatever kind of lock it is of. A row stays until the policy is removed: no reaper
-- deletes it. Clients that acquire do not read this table.
--   name         of leases, semaphores and shared_mutexes
--   max_hold_us  the longest time for which one grant may be held, counted from its acquisition, in microseconds; 0: no
--                limit. A reaper asks for the release of what is held longer
create table if not exists rowlock_policy (
    name varbinary(255) not null primary key,
    max_hold_us bigint not null check (max_hold_us >= 0)
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Quorum locks: one lock over several independent databases, the members of a quorum. This database may be one of them.
-- One row for each name: the greatest token that a quorum lock of that name is known to have had.
--   name   of the lock; a client claims a token while it has the lease of the same name
--   token  only rises
create table if not exists rowlock_quorum (
    name varbinary(255) not null primary key,
    token bigint not null,
    changed_at bigint not null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- What this database knows of its quorum: one row, or none if it is no member.
--   quorum      the id of the quorum, the same in all members
--   epoch       rises with each change of the members; what a client claims under another one is refused
--   members     the identities of their servers in their order, one on each line
--   ready_for   the identity of the server that may vote here: another one, such as a promoted standby, may have forgotten
--               grants, and waits for its readmission
--   floor       no token is given below: of tokens that this server may have forgotten
--   max_ttl_us  no session with a longer time to live claims a token: so long a readmission waits
create table if not exists rowlock_member (
    id smallint not null primary key,
    quorum varchar(255) not null,
    epoch bigint not null,
    members varchar(4000) not null,
    ready_for varchar(255) not null,
    floor bigint not null,
    max_ttl_us bigint not null,
    changed_at bigint not null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Versions of resources, for optimistic updates of things that have no version column of their own.
--   resource                its name, compared byte by byte
--   version                 grows by one with each update
--   created_at, updated_at  for display
--   deleted_at              null = alive; a resource that was deleted keeps counting its versions
create table if not exists rowlock_version (
    resource varbinary(255) not null primary key,
    version bigint not null,
    created_at bigint not null,
    updated_at bigint not null,
    deleted_at bigint null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Exactly one row. Tokens never repeat, even after the row of a lease was deleted.
--   id               always 1
--   floor            no token up to this one is ever granted again
--   settled          a floor raised so long ago that no statement from before can still run: free rows
--                    with tokens up to it may be deleted
--   raised_at        when floor was raised
--   server_identity  for which server: after the promotion of a replica that did not know all of its
--                    primary, the first session there raises the floor past all tokens that may have
--                    been granted; '' = none has told yet
--   reaped_at        when a reaper last ended a round, for monitoring; null = none has yet
create table if not exists rowlock_token_floor (
    id smallint not null primary key check (id = 1),
    floor bigint not null default 0,
    settled bigint not null default 0,
    raised_at bigint not null,
    server_identity varchar(255) not null default '',
    reaped_at bigint null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
insert into rowlock_token_floor (id, floor, settled, raised_at)
    values (1, 0, 0, timestampdiff(microsecond, '1970-01-01 00:00:00', utc_timestamp(6)))
    on duplicate key update id = 1;
