// A lease with a deadline of its own is extended: nobody gets it by the old deadline, its holder
// believes no more than the database has confirmed, and a request for its release comes first.

#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;

namespace {

client_options patient() {
    return {.ttl = 60s, .heartbeat = 20s};
}

/// What the database says that the holder of "job" has left.
std::chrono::milliseconds left_of(client& by) {
    const auto seen = by.inspect("job");
    REQUIRE(seen);
    REQUIRE(seen->holder);
    return seen->holder->remaining;
}

}  // namespace

// shows: promise-1, promise-2
ROWLOCK_SIMULATED_CASE(
    "an extended lease keeps others out past its first deadline, and keeps its token; control: one "
    "that is not extended",
    database) {
    client holder{database.source(), database.options(patient())};
    client other{database.source(), database.options(patient())};
    auto held = holder.acquire("job", {.max_duration = 4s});
    const auto brief = holder.acquire("brief", {.max_duration = 4s});
    const auto token = held.token();
    held.extend(1h);
    CHECK(held.remaining() > 20s);
    CHECK(held.token() == token);
    held.extend(5s);  // never earlier
    CHECK(held.remaining() > 20s);
    CHECK(left_of(other) > 20s);

    CHECK(other.try_acquire_for("brief", support::patience));
    CHECK_FALSE(other.try_acquire("job"));
    CHECK(held.held());
    held.release();
    const auto next = other.try_acquire("job");
    REQUIRE(next);
    CHECK(next->token() > token);
}

ROWLOCK_SIMULATED_CASE("a lease is extended only while it is held, and only if it has a deadline",
                       database) {
    client holder{database.source(), database.options(patient())};
    auto brief = holder.acquire("brief", {.max_duration = 600ms});
    auto endless = holder.acquire("endless");
    auto released = holder.acquire("released", {.max_duration = 1h});
    released.release();
    CHECK(kind_of([&] { endless.extend(1h); }) == errc::invalid_options);
    CHECK(kind_of([&] { released.extend(1h); }) == errc::not_owner);
    CHECK(kind_of([&] { lease{}.extend(1h); }) == errc::not_owner);
    CHECK(kind_of([&] { brief.extend(0s); }) == errc::invalid_options);
    CHECK(eventually([&] { return !brief.held(); }));
    CHECK(kind_of([&] { brief.extend(1h); }) == errc::lock_lost);

    // The database's judgement alone: the client believes that it has an hour.
    auto held = holder.acquire("job", {.max_duration = 1h});
    SUBCASE("past its deadline") {
        database.run("update rowlock_lock set deadline = acquired_at where name = 'job'");
    }
    SUBCASE("taken by force") {
        client other{database.source(), database.options(patient())};
        CHECK(other.force_release("job"));
    }
    SUBCASE("its session has ended") {
        database.run("update rowlock_session set ended = " +
                     std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"});
    }
    CHECK(kind_of([&] { held.extend(2h); }) == errc::lock_lost);
    CHECK_FALSE(held.held());
}

// shows: promise-6
ROWLOCK_SIMULATED_CASE(
    "an extension whose reply was lost is repeated, and the lease stays what it is", database) {
    interception network;
    client holder{network.wrap(database.source()),
                  database.options({.ttl = 60s, .heartbeat = 50ms})};
    client other{database.source(), database.options(patient())};
    auto held = holder.acquire("job", {.max_duration = 10s});
    std::atomic<int> commits{0};
    const auto self = std::this_thread::get_id();
    network.after([&](std::string_view what) {
        if (what != "commit" || std::this_thread::get_id() != self) return;
        if (commits++ == 0) interception::lose_reply();
    });
    held.extend(1h);
    CHECK(commits == 2);
    CHECK(held.remaining() > 20s);
    CHECK(left_of(other) > 20s);
    // Its row is compared with every third heartbeat.
    const auto before = holder.stats().heartbeats;
    CHECK(eventually([&] { return holder.stats().heartbeats > before + 8; }));
    CHECK(held.held());
    CHECK_FALSE(other.try_acquire("job"));
    held.extend(2h);
    held.release();
    CHECK(other.try_acquire("job"));
}

// shows: promise-6
TEST_CASE("a lease whose extension may have been committed is fenced and extended all the same") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool committed : {true, false}) {
            CAPTURE(committed);
            interception network;
            client holder{
                network.wrap(database.source()),
                database.options({.ttl = 60s, .heartbeat = 20ms, .retry = {.attempts = 1}})};
            client other{database.source(), database.options(patient())};
            auto held = holder.acquire("job", {.max_duration = 20s});
            std::atomic<bool> cut{true};
            const auto self = std::this_thread::get_id();
            const auto lose = [&](std::string_view what) {
                if (what != "commit" || std::this_thread::get_id() != self || !cut) return;
                interception::lose_reply();
            };
            if (committed) {
                network.after(lose);
            } else {
                network.before(lose);
            }
            CHECK(kind_of([&] { held.extend(1h); }) != errc{});
            cut = false;
            CHECK(held.held());
            CHECK(held.remaining() < 20s);  // no more than is known
            const auto before = holder.stats().heartbeats;
            CHECK(eventually([&] { return holder.stats().heartbeats > before + 8; }));
            CHECK(held.held());
            const auto app = database.connect();
            const auto in_transaction = [&] {
                app->query(database.speaks() == sql::dialect::sqlite ? "begin immediate" : "begin",
                           soon());
                const auto failed = kind_of([&] { fence(*app, held); });
                app->query(failed == errc{} ? "commit" : "rollback", soon());
                return failed;
            };
            const auto first = in_transaction();
            CHECK((first == errc{} || first == errc::conflict));
            CHECK(in_transaction() == errc{});
            held.extend(2h);
            CHECK(held.remaining() > 20s);
            CHECK(in_transaction() == errc{});
            held.release();
            CHECK(other.try_acquire("job"));
        }
    }
}

TEST_CASE("a fence that meets an extension is a conflict, and the lease stays held") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        auto held = holder.acquire("job", {.max_duration = 20s});
        interception between;
        const auto app = between.wrap(database.source()).connect(soon());
        bool done = false;
        between.before([&](std::string_view what) {
            // The token that the transaction is to find has been read.
            if (!what.starts_with("fence") || std::exchange(done, true)) return;
            held.extend(1h);
        });
        app->query("begin", soon());
        CHECK(kind_of([&] { fence(*app, held); }) == errc::conflict);
        CHECK(done);
        app->query("rollback", soon());
        CHECK(held.held());
        app->query("begin", soon());
        fence(*app, held);
        app->query("commit", soon());
        CHECK(held.held());
    }
}

TEST_CASE("an extension waits for a transaction that was fenced with the lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client holder{database.source(),
                      database.options({.ttl = 60s, .heartbeat = 20s, .statement_timeout = 300ms})};
        auto held = holder.acquire("job", {.max_duration = 1h});
        const auto app = database.connect();
        app->query("begin", soon());
        fence(*app, held);
        CHECK(kind_of([&] { held.extend(2h); }) != errc{});
        app->query("commit", soon());
        CHECK(held.held());
        CHECK(eventually([&] { return kind_of([&] { held.extend(2h); }) == errc{}; }));
    }
}

ROWLOCK_SIMULATED_CASE("a lease is not extended past a request for its release", database) {
    client holder{database.source(), database.options({.ttl = 60s, .heartbeat = 20s})};
    client other{database.source(), database.options(patient())};
    auto held = holder.acquire("job", {.max_duration = 25s});
    const auto requested = [&](const request_options& how) {
        const auto seen = other.inspect("job");
        REQUIRE(seen);
        return other.request_release("job", seen->token, how).value();
    };
    std::chrono::milliseconds left{};
    auto expected = errc::lock_lost;
    SUBCASE("at once") {
        held.extend(1h);
        left = requested({});
    }
    // Such a lease keeps its deadline.
    SUBCASE("at once, where its own deadline comes before its session's end") {
        left = requested({});
        expected = errc::invalid_options;
    }
    SUBCASE("within a time") {
        held.extend(1h);
        left = requested({.within = 70s, .reason = "x"});
        expected = errc::invalid_options;
    }
    CHECK(kind_of([&] { held.extend(2h); }) == expected);
    CHECK(kind_of([&] { held.extend(2h); }) == expected);
    CHECK(left_of(other) <= left);
    CHECK(held.remaining() <= left);
}

ROWLOCK_SIMULATED_CASE("a request at once outlives an extension whose answer comes late",
                       database) {
    interception network;
    client holder{network.wrap(database.source()),
                  database.options({.ttl = 20s, .heartbeat = 50ms, .margin = 200ms})};
    client asking{database.source(), database.options()};
    // It ends before its session would: the request alone would not be one for it to be lost.
    auto held = holder.acquire("job", {.max_duration = 10s});
    bool done = false;
    const auto self = std::this_thread::get_id();
    std::chrono::milliseconds left{};
    network.after([&](std::string_view what) {
        // The extension is committed, and its caller does not know.
        if (what != "commit" || std::this_thread::get_id() != self) return;
        if (std::exchange(done, true)) return;
        const auto seen = asking.inspect("job");
        left = asking.request_release("job", seen.value().token).value();
        const auto before = holder.stats().heartbeats;
        REQUIRE(eventually([&] { return holder.stats().heartbeats > before + 2; }));
    });
    const auto result = kind_of([&] { held.extend(1h); });
    CHECK(done);
    CHECK((result == errc{} || result == errc::lock_lost));
    CHECK(kind_of([&] { held.extend(1h); }) != errc{});
    // Heartbeats would keep it at almost 20 s.
    CHECK(eventually([&] { return left_of(asking) < 17s; }));
    const auto in_the_row = left_of(asking);
    CHECK(in_the_row <= left);
    CHECK(held.remaining() <= in_the_row);
}

// shows: promise-9
ROWLOCK_SIMULATED_CASE("an extended lease goes to the next in its queue when it is released",
                       database) {
    client holder{database.source(), database.options(patient())};
    client first{database.source(), database.options(patient())};
    client second{database.source(), database.options(patient())};
    auto held = holder.acquire("job");
    const auto token = held.token();
    auto one =
        std::async(std::launch::async, [&] { return first.acquire("job", {.max_duration = 30s}); });
    REQUIRE(eventually([&] { return holder.waiters("job").size() == 1; }));
    auto two = std::async(std::launch::async, [&] { return second.acquire("job"); });
    REQUIRE(eventually([&] { return holder.waiters("job").size() == 2; }));
    held.release();
    auto extended = one.get();
    CHECK(extended.token() > token);
    extended.extend(1h);
    CHECK_FALSE(holder.try_acquire("job"));
    extended.extend(2h);
    CHECK(extended.held());
    const auto before = extended.token();
    extended.release();
    const auto last = two.get();
    CHECK(last.held());
    CHECK(last.token() > before);
}

TEST_CASE("an extension leaves the time of the acquisition, which max_hold counts from") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        auto held = holder.acquire("job", {.max_duration = 1h});
        database.run("update rowlock_lock set acquired_at = acquired_at - " +
                     std::string{database.speaks() == sql::dialect::postgresql ? "interval '1 hour'"
                                                                               : "3600000000"});
        held.extend(2h);
        const auto seen = holder.inspect("job");
        REQUIRE(seen);
        REQUIRE(seen->holder);
        CHECK(seen->holder->held_for >= 1h);
    }
}

// shows: promise-2
TEST_CASE("a forced release that meets an extension takes the lease all the same") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client holder{database.source(), database.options(patient())};
        client breaker{network.wrap(database.source()), database.options(patient())};
        auto held = holder.acquire("job", {.max_duration = 10min});
        bool extended = false;
        network.before([&](std::string_view what) {
            if (what == "force_release" && !std::exchange(extended, true)) held.extend(1h);
        });
        CHECK(breaker.force_release("job"));
        CHECK(extended);
        CHECK_FALSE(breaker.is_locked("job"));
    }
}
