#pragma once

#include "common/findings.hpp"

namespace bench {

/// Every row, in order, with its target. Rows without measurements are shown too.
struct goal {
    const char* id;
    const char* measure;
    wanted side;
    double target;
};
inline constexpr goal goals[] = {
    {"T1/postgresql", "PostgreSQL, 1 thread, by the floor", wanted::at_least, 0.92},
    {"T1/mariadb", "MariaDB, 1 thread, by the floor", wanted::at_least, 0.90},
    {"T1/sqlite-full", "SQLite FULL, 1 thread, by the floor", wanted::at_least, 0.85},
    {"T1/sqlite-normal", "SQLite NORMAL, 1 thread, by the floor", wanted::at_least, 0.5},
    {"T2/1-thread", "PostgreSQL by Redis with fsync", wanted::at_least, 1.0},
    {"T2/16-threads", "PostgreSQL by Redis with fsync", wanted::at_least, 1.5},
    {"T3", "PostgreSQL by Redis in memory, 16 threads", wanted::at_least, 0.5},
    {"T4/1-thread", "PostgreSQL by ZooKeeper", wanted::at_least, 4},
    {"T4/16-threads", "PostgreSQL by ZooKeeper", wanted::at_least, 8},
    {"T5/1-thread", "failed try by SELECT", wanted::at_least, 0.8},
    {"T5/16-threads", "failed try by SELECT", wanted::at_least, 0.8},
    {"T5/wal", "log of failed tries by that of SELECTs", wanted::at_most, 1.1},
    {"T6/time", "heartbeat, 10 000 leases by 1", wanted::at_most, 1.2},
    {"T6/statements", "statements of a heartbeat", wanted::at_most, 1},
    {"T7/acquire-p50", "acquire, 1 000 000 rows by none", wanted::at_most, 1.2},
    {"T7/acquire-p99-reaping", "acquire, beside a reaper by without", wanted::at_most, 2},
    {"T7/reaped-per-second", "reaped rows a second", wanted::at_least, 50'000},
    {"T8/redis", "hand-off, 16 processes, by Redis' fair queue", wanted::at_most, 1.2},
    {"T8/zookeeper", "hand-off, 16 processes, by ZooKeeper", wanted::at_most, 0.4},
    {"T9/re-entry", "locking again", wanted::at_most, 200},
    {"T9/held", "held()", wanted::at_most, 50},
    {"T10/sqlite", "rowlock run by flock", wanted::at_most, 8},
    {"T10/postgresql", "rowlock run, added to the command", wanted::at_most, 25},
    {"T11/readers-postgresql-16", "readers of one lock, by own names", wanted::at_least, 0.5},
    {"T11/readers-postgresql-64", "readers of one lock, by own names", wanted::at_least, 0.5},
    {"T11/readers-mariadb-16", "readers of one lock, by own names", wanted::at_least, 0.5},
    {"T11/readers-sqlite-16", "readers of one lock, by own names", wanted::at_least, 0.5},
    {"T11/sharing-postgresql-16", "the same, sharing grants", wanted::at_least, 3},
    {"T11/sharing-postgresql-64", "the same, sharing grants", wanted::at_least, 3},
    {"T11/sharing-mariadb-16", "the same, sharing grants", wanted::at_least, 3},
    {"T11/sharing-sqlite-16", "the same, sharing grants", wanted::at_least, 3},
    {"T11/semaphore-postgresql-16", "takers of a semaphore, by own names", wanted::at_least, 0.5},
    {"T11/semaphore-postgresql-64", "takers of a semaphore, by own names", wanted::at_least, 0.5},
    {"T11/semaphore-mariadb-16", "takers of a semaphore, by own names", wanted::at_least, 0.5},
    {"T11/semaphore-sqlite-16", "takers of a semaphore, by own names", wanted::at_least, 0.5},
    {"T11/clients-postgresql-16", "takers of a semaphore, a client each, by own names",
     wanted::at_least, 0.5},
    {"T11/clients-mariadb-16", "takers of a semaphore, a client each, by own names",
     wanted::at_least, 0.5},
    {"T11/clients-sqlite-16", "takers of a semaphore, a client each, by own names",
     wanted::at_least, 0.5},
    {"T11/writer-postgresql", "a writer's wait beyond the longest read", wanted::at_most, 50},
    {"T11/writer-mariadb", "a writer's wait beyond the longest read", wanted::at_most, 50},
    {"T11/writer-sqlite", "a writer's wait beyond the longest read", wanted::at_most, 50},
    {"T12/postgresql-1", "four locks by one call, by one after the other", wanted::at_least, 1.0},
    {"T12/clients-postgresql-16", "the same, 16 clients", wanted::at_least, 1.0},
    {"T12/mariadb-1", "four locks by one call, by one after the other", wanted::at_least, 1.0},
    {"T12/clients-mariadb-16", "the same, 16 clients", wanted::at_least, 1.0},
    {"T12/sqlite-1", "four locks by one call, by one after the other", wanted::at_least, 1.0},
    {"T12/clients-sqlite-16", "the same, 16 clients", wanted::at_least, 1.0},
    {"T12/modes-postgresql-1", "modes of four, by one after the other", wanted::at_least, 1.0},
    {"T12/modes-clients-postgresql-16", "the same, 16 clients", wanted::at_least, 1.0},
    {"T12/modes-mariadb-1", "modes of four, by one after the other", wanted::at_least, 1.0},
    {"T12/modes-clients-mariadb-16", "the same, 16 clients", wanted::at_least, 1.0},
    {"T12/modes-sqlite-1", "modes of four, by one after the other", wanted::at_least, 1.0},
    {"T12/modes-clients-sqlite-16", "the same, 16 clients", wanted::at_least, 1.0},
    {"T13/postgresql", "the next leader after a step-down, by ZooKeeper's", wanted::at_most, 1.0},
    {"T13/mariadb", "the next leader after a step-down, by ZooKeeper's", wanted::at_most, 1.0},
    {"T13/sqlite", "the next leader after a step-down, by ZooKeeper's", wanted::at_most, 1.0},
    {"T14", "a run once a period, by ShedLock's statements", wanted::at_least, 0.3},
    {"T15/postgresql", "grants to 8 waiters that queue, by the same that spin", wanted::at_least,
     0.9},
    {"T15/mariadb", "grants to 8 waiters that queue, by the same that spin", wanted::at_least, 0.9},
    {"T15/sqlite", "grants to 8 waiters that queue, by the same that spin", wanted::at_least, 0.9},
    {"T16", "a lock of three members on one server, by one lease", wanted::at_least, 0.1},
    {"T17/pair-postgresql", "acquire and release of a kept lease, in us", wanted::at_most, 1.0},
    {"T17/postgresql-1", "pairs on kept leases, by plain ones", wanted::at_least, 100},
    {"T17/postgresql-16", "the same, 16 threads of one client", wanted::at_least, 20},
    {"T17/recall-postgresql", "an acquire that recalls, by a hand-over", wanted::at_most, 1.5},
    {"T17/in-turn-postgresql-1", "two clients in turn, by plain ones", wanted::at_least, 0.9},
    {"T17/in-turn-postgresql-16", "two clients in turn, by plain ones", wanted::at_least, 0.9},
    {"T17/pair-mariadb", "acquire and release of a kept lease, in us", wanted::at_most, 1.0},
    {"T17/mariadb-1", "pairs on kept leases, by plain ones", wanted::at_least, 100},
    {"T17/mariadb-16", "the same, 16 threads of one client", wanted::at_least, 20},
    {"T17/recall-mariadb", "an acquire that recalls, by a hand-over", wanted::at_most, 1.5},
    {"T17/in-turn-mariadb-1", "two clients in turn, by plain ones", wanted::at_least, 0.9},
    {"T17/in-turn-mariadb-16", "two clients in turn, by plain ones", wanted::at_least, 0.9},
    {"T17/pair-sqlite", "acquire and release of a kept lease, in us", wanted::at_most, 1.0},
    {"T17/sqlite-1", "pairs on kept leases, by plain ones", wanted::at_least, 100},
    {"T17/sqlite-16", "the same, 16 threads of one client", wanted::at_least, 20},
    {"T17/recall-sqlite", "an acquire that recalls, by a hand-over", wanted::at_most, 1.5},
    {"T17/in-turn-sqlite-1", "two clients in turn, by plain ones", wanted::at_least, 0.9},
    {"T17/in-turn-sqlite-16", "two clients in turn, by plain ones", wanted::at_least, 0.9},
};

[[nodiscard]] constexpr const char* sign_of(const goal& of) {
    return of.side == wanted::at_least ? "≥" : "≤";
}

}  // namespace bench
