// A failed attempt writes nothing.

#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

using namespace rowlock;
using namespace std::chrono_literals;
using support::soon;

namespace {

constexpr int attempts = 300;

std::int64_t log_position(support::lock_database& database) {
    switch (database.speaks()) {
        case sql::dialect::postgresql:
            return database.number("select (pg_current_wal_insert_lsn() - '0/0')::bigint");
        case sql::dialect::mysql: {
            const auto row = database.run("show global status like 'Innodb_lsn_current'");
            return row.integer(0, 1);
        }
        case sql::dialect::sqlite:
            return database.number("select total_changes()");
    }
    return 0;
}

}  // namespace

// shows: promise-8
TEST_CASE("300 failed attempts write nothing to the database's log") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client holder{database.source(), database.options({.ttl = 10min})};
        client loser{database.source(), database.options({.ttl = 10min})};
        const auto lease = holder.acquire("job");
        CHECK_FALSE(loser.try_acquire("job"));

        // The server writes a little by itself, and more after much work. So take the least of some
        // rounds.
        auto tried = std::numeric_limits<std::int64_t>::max();
        for (int round = 0; round < 5; ++round) {
            const auto before = log_position(database);
            for (int i = 0; i < attempts; ++i) {
                static_cast<void>(loser.try_acquire("job").has_value());
            }
            tried = std::min(tried, log_position(database) - before);
        }

        // The control: the same number of statements that lock the row and change nothing.
        const auto db = database.connect();
        const std::string table = database.prefix() + "lock";
        const auto start = log_position(database);
        for (int i = 0; i < attempts; ++i) {
            db->query(database.speaks() == sql::dialect::postgresql
                          ? "insert into " + table +
                                " (name, token, changed_at) values ('job', 1, now()) "
                                "on conflict (name) do update set token = 0 where false"
                          : "update " + table + " set token = token + 1 where name = 'job'",
                      soon());
        }
        const auto control = log_position(database) - start;
        MESSAGE(std::string{support::to_string(database.which())}, ": log bytes of ", attempts,
                " failed attempts: ", tried, ", of as many locking statements: ", control);
        CHECK(control > attempts * 20);
        CHECK(tried < control / 10);
    }
}

// shows: promise-8
TEST_CASE("failed attempts change no page of a SQLite file") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    client holder{database.source(), database.options({.ttl = 10min})};
    client loser{database.source(), database.options({.ttl = 10min})};
    const auto lease = holder.acquire("job");
    CHECK_FALSE(loser.try_acquire("job"));
    // data_version changes with every commit of another connection that wrote.
    const auto before = database.number("pragma data_version");
    for (int i = 0; i < attempts; ++i) static_cast<void>(loser.try_acquire("job").has_value());
    CHECK(database.number("pragma data_version") == before);
    CHECK(loser.try_acquire("another"));
    CHECK(database.number("pragma data_version") != before);
}
