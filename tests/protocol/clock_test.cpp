// Which clock is read, and when. Controls show each trap, and the tests that rowlock avoids it.

#include "support/blocked.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/testing.hpp>

#include <doctest/doctest.h>

#include <future>
#include <string>
#include <utility>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::attempt;
using support::eventually;
using support::soon;

namespace {

constexpr auto wait_behind_a_lock = 1200ms;

std::string now_of(support::lock_database& database) {
    return database.speaks() == sql::dialect::postgresql
               ? "clock_timestamp()"
               : "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";
}

/// The database's present time, as SQL.
std::string time_of(support::lock_database& database) {
    if (database.speaks() != sql::dialect::postgresql) {
        return std::to_string(database.number("select " + now_of(database)));
    }
    const auto row = database.run("select clock_timestamp()::text");
    return "timestamptz '" + std::string{row.text(0, 0)} + "'";
}

/// Locks a row from another connection for a while. `during` waits for it. Returns its result, and
/// the database's time right before the end of the wait.
template <typename Action>
auto behind_a_shared_lock(support::lock_database& database, const std::string& table,
                          const std::string& where, Action during) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    const auto blocker = database.connect();
    blocker->query("begin", soon());
    blocker->query("select * from " + database.prefix() + table + " where " + where +
                       (postgresql ? " for share" : " lock in share mode"),
                   soon());
    auto result = std::async(std::launch::async, during);
    CHECK(support::somebody_waits_for_a_row(database));
    CHECK(result.wait_for(wait_behind_a_lock) == std::future_status::timeout);
    const auto end = time_of(database);
    blocker->query("commit", soon());
    return std::pair{result.get(), end};
}

/// A difference of two times of the database in milliseconds.
std::int64_t milliseconds_between(support::lock_database& database, const std::string& later,
                                  const std::string& earlier, const std::string& from) {
    return database.speaks() == sql::dialect::postgresql
               ? database.number("select (extract(epoch from (" + later + ") - (" + earlier +
                                 ")) * 1000)::bigint from " + from)
               : database.number("select ((" + later + ") - (" + earlier + ")) div 1000 from " +
                                 from);
}

}  // namespace

// shows: promise-4
TEST_CASE("control: a plain UPDATE behind a share lock records a clock from before the wait") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const std::string now = now_of(database);
        database.run("insert into rowlock_lock (name, token, changed_at) values ('job', 1, " + now +
                     ")");
        const auto db = database.connect();
        behind_a_shared_lock(database, "lock", "name = 'job'", [&] {
            return db
                ->query("update " + database.prefix() + "lock set token = 2, changed_at = " + now +
                            " where name = 'job'",
                        soon())
                .affected();
        });
        CHECK(milliseconds_between(database, now, "changed_at", "rowlock_lock") >= 1000);
    }
}

// shows: promise-4
TEST_CASE(
    "a grant that waited for the row records times after the wait, and its deadline is not "
    "shortened") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        protocol.sessions().open(*db, {session_id{1}, "owner", "host", "program", 1, 60s}, soon());
        const std::string now = now_of(database);
        database.run("insert into rowlock_lock (name, token, changed_at) values ('job', 1, " + now +
                     ")");
        const auto waited = behind_a_shared_lock(database, "lock", "name = 'job'", [&] {
            return protocol.acquire(*db, {"job", session_id{1}, grant_id{11}, "", "", 10'000'000},
                                    soon());
        });
        const std::string& end = waited.second;
        REQUIRE(waited.first.what == attempt::outcome::granted);
        CHECK(milliseconds_between(database, "acquired_at", end, "rowlock_lock") >= 0);
        CHECK(milliseconds_between(database, "deadline", end, "rowlock_lock") > 9000);
    }
}

// shows: promise-4
TEST_CASE("a heartbeat that waited for its row extends the session from a time after the wait") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        protocol.sessions().open(*db, {session_id{1}, "owner", "host", "program", 1, 10s}, soon());
        const auto waited = behind_a_shared_lock(database, "session", "id = 1", [&] {
            return protocol.sessions().heartbeat(*db, session_id{1}, 0, soon());
        });
        REQUIRE(waited.first);
        CHECK(milliseconds_between(database, "expires_at", waited.second, "rowlock_session") >
              9000);
    }
}

// shows: promise-4
TEST_CASE("sessions in different time zones agree on which sessions have expired") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const auto in_zone = [&](const std::string& zone) {
            const sql::connection_source elsewhere{
                database.speaks(),
                [&database, zone, postgresql](sql::deadline until) {
                    auto db = database.source().connect(until);
                    db->query((postgresql ? "set timezone = '" : "set time_zone = '") + zone + "'",
                              until);
                    return db;
                },
                "in " + zone};
            return elsewhere.with_tables(database.source().tables());
        };
        // PostgreSQL keeps the zone. On MySQL the client sets UTC on its own connections.
        client east{in_zone("+09:00"), database.options({.ttl = 1min})};
        client west{in_zone("-08:00"), database.options({.ttl = 1min})};
        const auto lease = east.acquire("job");
        CHECK_FALSE(west.try_acquire("job"));
        const auto info = west.inspect("job");
        REQUIRE(info);
        REQUIRE(info->holder);
        CHECK(info->holder->remaining > 25s);
        CHECK(info->holder->remaining <= 1min);
        CHECK(info->holder->held_for < 1min);
        const auto limited = west.acquire("limited", {.max_duration = 40s});
        CHECK(east.inspect("limited")->holder->remaining > 15s);
        CHECK(east.inspect("limited")->holder->remaining <= 40s);
        CHECK_FALSE(east.try_acquire("limited"));
    }
}

// shows: promise-4
TEST_CASE("a heartbeat counts although the database's clock was set back") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        protocol.sessions().open(*db, {session_id{1}, "owner", "host", "program", 1, 10s}, soon());
        // The clock is set back so that the new expiry equals the old one: only `beats` differs.
        for (int i = 0; i < 3; ++i)
            CHECK(protocol.sessions().heartbeat(*db, session_id{1}, 0, soon()));
        CHECK(database.number("select beats from rowlock_session") == 3);
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        database.run(
            std::string{"update rowlock_session set expires_at = "} +
            (postgresql ? "clock_timestamp() + interval '1 hour'" : "expires_at + 3600000000"));
        CHECK(protocol.sessions().heartbeat(*db, session_id{1}, 0, soon()));
        CHECK(database.number("select beats from rowlock_session") == 4);
    }
}

TEST_CASE(
    "a lease is held while heartbeats succeed, and lost when the clock jumps past the window") {
    testing::database database;
    client locks{database.source(), database.options({.ttl = 30s})};
    const auto lease = locks.acquire("job");
    CHECK(lease.held());
    CHECK(lease.remaining() == 25s);  // ttl − margin

    database.clock().advance(10s);  // a heartbeat is due
    REQUIRE(eventually([&] { return locks.stats().heartbeats > 0; }));
    CHECK(lease.held());
    CHECK(lease.remaining() == 25s);

    // As on a suspended machine, the clock is past the window before a heartbeat can be sent.
    std::promise<void> told;
    const std::stop_callback on_loss{lease.lost(), [&] { told.set_value(); }};
    database.clock().advance(25s);
    CHECK_FALSE(lease.held());
    CHECK(lease.remaining() == 0s);
    CHECK(told.get_future().wait_for(20s) == std::future_status::ready);
    CHECK(locks.stats().lost == 1);
}

TEST_CASE("another client takes over when the database's clock has passed the ttl, not before") {
    testing::database database;
    client next{database.source(), database.options({.ttl = 24h})};
    client holder{database.source(), database.options({.ttl = 30s})};
    const auto kept = next.acquire("open the session");
    const auto lease = holder.acquire("job");
    CHECK_FALSE(next.try_acquire("job"));
    database.clock().advance(60s);
    const auto taken = next.try_acquire("job");
    REQUIRE(taken);
    CHECK(taken->token() > lease.token());
    CHECK_FALSE(lease.held());
}
