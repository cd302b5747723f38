-- The tables of rowlock. SQLite 3.35 or newer.
--
-- Times are microseconds since 1970, UTC, by the clock of this machine. The statement that decides
-- on one writes it, so none has a default.
--
-- Text is compared byte by byte, as SQLite does by itself. Tables found by text are WITHOUT ROWID:
-- one tree to search and to write, not a table and an index.

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
--   server_identity     empty: a file is not promoted
--   opened_at           for display
--   wake_address        random: names its mailbox, and tells nothing else
--   wake_secret         128 random bits in hexadecimal; never sent. What is told to a session outside
--                       the tables carries a proof made with it, so that only those who can read
--                       this row can make it look (docs/adr/0032)
--   mailbox             the network namespace in which its mailbox lies; null = it has none
create table rowlock_session (
    id integer primary key check (id > 0),
    owner text not null,
    host text not null,
    pid integer not null,
    program text not null,
    ttl_us integer not null check (ttl_us > 0),
    expires_at integer not null,
    ended integer not null default 0,
    beats integer not null default 0,
    revision integer not null default 0,
    server_identity text not null default '',
    opened_at integer not null,
    wake_address integer not null default 0,
    wake_secret text not null default '',
    mailbox integer
);

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
create table rowlock_lock (
    name text primary key not null,
    token integer not null check (token >= 0),
    session integer,
    grant_id integer,
    thread text,
    note text,
    acquired_at integer,
    changed_at integer not null,
    deadline integer,
    heir integer,
    asked_for integer,
    asked_by text,
    reason text,
    used integer not null default 0 check (used >= 0),
    capacity integer check (capacity >= 0)
) without rowid;

-- One row for each entry in a queue: of a lease, a semaphore or a shared_mutex. It lives as long as its session.
--   name          of the lock that is waited for
--   ticket        the lowest is served first; one sequence for all queues. An upgrade's is negative: it comes before all
--   session       who waits. The index is for a client that looks at all its entries at once, for the
--                 deletion of its session, and for whoever follows a circle of waiters from a holder
--                 to what that waits for
--   grant_id      becomes the grant_id of the lease or hold
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
create table rowlock_ticket (
    ticket integer primary key autoincrement,
    name text not null,
    session integer not null,
    grant_id integer not null unique,
    weight integer check (weight > 0),
    base integer,
    members integer not null default 1,
    priority integer not null default 0,
    enqueued_at integer not null,
    thread text,
    note text,
    deadline_us integer,
    blocks text,
    waits_until integer
);
create index rowlock_ticket_name_ticket on rowlock_ticket (name, ticket);
create index rowlock_ticket_session_thread on rowlock_ticket (session, thread);

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
create table rowlock_hold (
    name text not null,
    grant_id integer not null,
    session integer not null,
    weight integer not null check (weight > 0),
    token integer not null,
    thread text,
    note text,
    acquired_at integer not null,
    deadline integer,
    requested integer not null default 0,
    asked_by text,
    reason text,
    primary key (name, grant_id)
) without rowid;
create index rowlock_hold_session on rowlock_hold (session);

-- Runs of work that is to be done once a period, or not too often. The lease of the same name makes them exclusive; one row
-- for each name, which stays.
--   name        of the lease
--   token       of the lease under which the latest run began: that run alone may end it
--   began_at    of the latest run
--   finished    0: the latest run has not reported that it finished
--   period      the greatest that a finished run had, compared byte by byte; null: none had any
--   ended_at    when a run finished last; null: none has
--   not_before  no run begins before that, whatever became of the latest; null: it may
create table rowlock_run (
    name text primary key not null,
    token integer not null,
    began_at integer not null,
    finished integer not null default 0,
    period text,
    ended_at integer,
    not_before integer
) without rowid;

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
create table rowlock_barrier (
    name text not null,
    generation integer not null check (generation >= 0),
    kind integer not null check (kind in (0, 1)),
    revision integer not null default 0,
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
--   joined_at  a party that withdrew is forgotten some minutes after it
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

-- What an operator demands of a name, whatever kind of lock it is of. A row stays until the policy is removed: no reaper
-- deletes it. Clients that acquire do not read this table.
--   name         of leases, semaphores and shared_mutexes
--   max_hold_us  the longest time for which one grant may be held, counted from its acquisition, in microseconds; 0: no
--                limit. A reaper asks for the release of what is held longer
create table rowlock_policy (
    name text primary key not null,
    max_hold_us integer not null check (max_hold_us >= 0)
) without rowid;

-- Quorum locks: one lock over several independent databases, the members of a quorum. This database may be one of them.
-- One row for each name: the greatest token that a quorum lock of that name is known to have had.
--   name   of the lock; a client claims a token while it has the lease of the same name
--   token  only rises
create table rowlock_quorum (
    name text primary key not null,
    token integer not null,
    changed_at integer not null
) without rowid;

-- What this database knows of its quorum: one row, or none if it is no member.
--   quorum      the id of the quorum, the same in all members
--   epoch       rises with each change of the members; what a client claims under another one is refused
--   members     the identities of their servers in their order, one on each line
--   ready_for   the identity of the server that may vote here: another one, such as a promoted standby, may have forgotten
--               grants, and waits for its readmission
--   floor       no token is given below: of tokens that this server may have forgotten
--   max_ttl_us  no session with a longer time to live claims a token: so long a readmission waits
create table rowlock_member (
    id integer primary key not null,
    quorum text not null,
    epoch integer not null,
    members text not null,
    ready_for text not null,
    floor integer not null,
    max_ttl_us integer not null,
    changed_at integer not null
) without rowid;

-- Versions of resources, for optimistic updates of things that have no version column of their own.
--   resource                its name, compared byte by byte
--   version                 grows by one with each update
--   created_at, updated_at  for display
--   deleted_at              null = alive; a resource that was deleted keeps counting its versions
create table rowlock_version (
    resource text primary key not null,
    version integer not null,
    created_at integer not null,
    updated_at integer not null,
    deleted_at integer
) without rowid;

-- Exactly one row. Tokens never repeat, even after the row of a lease was deleted.
--   id               always 1
--   floor            no token up to this one is ever granted again
--   settled          a floor raised so long ago that no statement from before can still run: free rows
--                    with tokens up to it may be deleted
--   raised_at        when floor was raised
--   server_identity  empty: a file is not promoted
--   reaped_at        when a reaper last ended a round, for monitoring; null = none has yet
create table rowlock_token_floor (
    id integer primary key check (id = 1),
    floor integer not null default 0,
    settled integer not null default 0,
    raised_at integer not null,
    server_identity text not null default '',
    reaped_at integer,
    check (settled <= floor)
);
insert into rowlock_token_floor (id, floor, settled, raised_at)
    values (1, 0, 0, cast((julianday('now') - 2440587.5) * 86400000000 as integer));
