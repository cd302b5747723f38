#include <rowlock/sql/classify.hpp>

#include <doctest/doctest.h>

#include <string_view>

using rowlock::errc;
using rowlock::sql::classify_sqlite;

namespace {

// Numbers instead of names, so that the table is checked against sqlite.org/rescode.html.
struct known_code {
    int code;
    errc kind;
    std::string_view message = {};
};

}  // namespace

TEST_CASE("SQLite's result codes are classified by what a caller can do") {
    constexpr known_code codes[] = {
        {3, errc::access_denied},            // PERM
        {4, errc::conflict},                 // ABORT
        {516, errc::conflict},               // ABORT_ROLLBACK
        {5, errc::timed_out},                // BUSY
        {261, errc::timed_out},              // BUSY_RECOVERY
        {517, errc::conflict},               // BUSY_SNAPSHOT
        {773, errc::timed_out},              // BUSY_TIMEOUT
        {6, errc::conflict},                 // LOCKED
        {262, errc::conflict},               // LOCKED_SHAREDCACHE
        {7, errc::out_of_resources},         // NOMEM
        {8, errc::read_only},                // READONLY
        {264, errc::read_only},              // READONLY_RECOVERY
        {520, errc::read_only},              // READONLY_CANTLOCK
        {1032, errc::database_unreachable},  // READONLY_DBMOVED
        {1544, errc::read_only},             // READONLY_DIRECTORY
        {9, errc::timed_out},                // INTERRUPT
        {10, errc::database_error},          // IOERR
        {266, errc::database_error},         // IOERR_READ
        {1034, errc::outcome_unknown},       // IOERR_FSYNC
        {1290, errc::outcome_unknown},       // IOERR_DIR_FSYNC
        {3082, errc::out_of_resources},      // IOERR_NOMEM
        {4874, errc::out_of_resources},      // IOERR_SHMSIZE
        {11, errc::database_error},          // CORRUPT
        {13, errc::out_of_resources},        // FULL
        {14, errc::database_unreachable},    // CANTOPEN
        {526, errc::database_unreachable},   // CANTOPEN_ISDIR
        {15, errc::timed_out},               // PROTOCOL
        {17, errc::conflict},                // SCHEMA
        {18, errc::database_error},          // TOOBIG
        {19, errc::database_error},          // CONSTRAINT
        {275, errc::database_error},         // CONSTRAINT_CHECK
        {1299, errc::database_error},        // CONSTRAINT_NOTNULL
        {1555, errc::unique_violation},      // CONSTRAINT_PRIMARYKEY
        {2067, errc::unique_violation},      // CONSTRAINT_UNIQUE
        {2579, errc::unique_violation},      // CONSTRAINT_ROWID
        {21, errc::database_error},          // MISUSE
        {22, errc::unsupported},             // NOLFS
        {23, errc::access_denied},           // AUTH
        {26, errc::database_error},          // NOTADB
        {513, errc::conflict},               // ERROR_RETRY
        {769, errc::conflict},               // ERROR_SNAPSHOT
    };
    for (const known_code& one : codes) {
        CAPTURE(one.code);
        CHECK(classify_sqlite(one.code, one.message) == one.kind);
    }
}

TEST_CASE("errors that SQLite reports only in words are distinguished") {
    constexpr known_code codes[] = {
        {1, errc::schema_outdated, "no such table: rowlock_lock"},
        {1, errc::schema_outdated, "no such column: deadline"},
        {1, errc::schema_outdated, "table rowlock_lock has no column named note"},
        {1, errc::unsupported, "no such function: unixepoch"},
        {1, errc::database_error, "near \"selekt\": syntax error"},
        {1, errc::database_error, ""},
        {19, errc::database_error, "CHECK constraint failed: no such table"},
    };
    for (const known_code& one : codes) {
        CAPTURE(one.message);
        CHECK(classify_sqlite(one.code, one.message) == one.kind);
    }
}
