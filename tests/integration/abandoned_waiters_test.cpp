// Queue entries and grants of threads that stopped waiting, and the cost of a wait without events.

#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/driver/sqlite.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;

namespace {

/// Whether this is the first of the statements that delete a ticket.
bool cancels(std::string_view what) {
    return what == "cancel" || what == "tickets";
}

/// Holds a client's cancellation back before it is sent.
struct cancel_held_up {
    std::promise<void> go;
    std::shared_ptr<std::atomic<bool>> reached = std::make_shared<std::atomic<bool>>(false);
    std::mutex mutex;
    std::vector<std::string> sent;  ///< statements since the cancellation

    explicit cancel_held_up(interception& network) {
        network.before(
            [this, gate = go.get_future().share(), there = reached](std::string_view what) {
                if (cancels(what) && !there->exchange(true)) gate.wait();
                if (!*there) return;
                const std::lock_guard lock{mutex};
                sent.emplace_back(what);
            });
    }
    std::vector<std::string> statements() {
        const std::lock_guard lock{mutex};
        return sent;
    }
};

/// Waits for the lease until the client has a ticket and has looked at it once, and then stops.
void wait_and_give_up(support::lock_database& database, client& waiter) {
    std::stop_source stop;
    auto waiting = std::async(std::launch::async, [&] {
        return waiter.try_acquire_for("job", support::patience, stop.get_token()).has_value();
    });
    CHECK(support::places(database, 1));
    CHECK(eventually([&] { return waiter.stats().polls > 0; }));
    stop.request_stop();
    CHECK_FALSE(waiting.get());
}

/// Waits until the client with a ttl of 60 s has been granted the lease, whether it knows or not.
bool served_to_ttl_60s(support::lock_database& database) {
    return eventually([&] {
        return database.number(
                   "select count(*) from rowlock_lease l join rowlock_session s on "
                   "s.id = l.session where s.ttl_us = 60000000") == 1;
    });
}

}  // namespace

TEST_CASE("a lease granted to a thread that stopped waiting goes on after one more statement") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool another_waits : {false, true}) {
            CAPTURE(another_waits);
            support::lock_database fresh{database.which()};
            client holder{fresh.source(), fresh.options()};
            client other{fresh.source(), fresh.options({.poll_interval = 10s})};
            interception network;
            client slow{network.wrap(fresh.source()),
                        fresh.options({.ttl = 60s, .poll_interval = 1min})};
            auto job = holder.acquire("job");
            cancel_held_up cancel{network};
            CHECK_FALSE(slow.try_acquire("job"));  // opens its session
            wait_and_give_up(fresh, slow);
            REQUIRE(eventually([&] { return cancel.reached->load(); }));
            std::future<lease> waiting;
            if (another_waits) {
                waiting = std::async(std::launch::async,
                                     [&] { return support::acquire_soon(other, "job"); });
                REQUIRE(support::places(fresh, 2));
            }
            job.release();
            REQUIRE(served_to_ttl_60s(fresh));
            if (!another_waits) CHECK_FALSE(other.try_acquire("job"));
            cancel.go.set_value();
            if (another_waits) {
                CHECK(waiting.get().held());
            } else {
                CHECK(eventually([&] { return other.try_acquire("job").has_value(); }));
            }
            // The cancellation, a probe on some databases, and the release or the hand-over.
            const auto sent = cancel.statements();
            CHECK(std::ranges::find(sent, "heartbeat") == sent.end());
            CHECK(std::ranges::find(sent, "served") == sent.end());
            CHECK(eventually([&] { return slow.stats().held == 0; }));
            network.before({});
        }
    }
}

TEST_CASE("a destroyed client cancels the entry of an enqueue whose reply was lost") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        const auto held = holder.acquire("job");
        std::atomic<bool> lost{false};
        std::atomic<bool> ended{false};
        interception network;
        network.after([&](std::string_view what) {
            if (what == "enqueue" && !lost.exchange(true)) interception::lose_reply();
        });
        // Until the session ends no cancellation of the heartbeat's gets through.
        network.before([&](std::string_view what) {
            if (what == "end_session") ended = true;
            if (cancels(what) && !ended) throw error{errc::timed_out, "held up"};
        });
        {
            client slow{network.wrap(database.source()), database.options({.ttl = 60s})};
            std::stop_source stop;
            auto waiting = std::async(std::launch::async, [&] {
                return slow.try_acquire_for("job", support::patience, stop.get_token()).has_value();
            });
            CHECK(eventually([&] { return slow.stats().queued == 1; }));
            stop.request_stop();
            CHECK_FALSE(waiting.get());
            CHECK(lost);
            CHECK(slow.stats().unknown_outcomes == 1);
            CHECK(database.number("select count(*) from rowlock_waiter") >= 1);
        }
        CHECK(ended);
        CHECK(database.number("select count(*) from rowlock_waiter") == 0);
    }
}

TEST_CASE("the client that ends an expired session deletes its entries in all queues") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const support::protocol_connection hand{database};
        for (const std::int64_t dead : {1, 2}) {
            const session_id session{dead};
            hand.open(session);
            REQUIRE(hand.try_acquire("job " + std::to_string(dead), session, grant_id{dead}));
            hand.enqueue("report", session, grant_id{10 + dead});
            hand.enqueue("backup", session, grant_id{20 + dead});
        }
        database.run("update rowlock_session set expires_at = opened_at");
        client other{database.source(), database.options()};
        CHECK(other.try_acquire_for("job 1", 10s).has_value());
        const auto entries_of = [&](int dead) {
            return database.number("select count(*) from rowlock_waiter where session = " +
                                   std::to_string(dead));
        };
        CHECK(eventually([&] { return entries_of(1) == 0; }));
        CHECK(entries_of(2) == 2);  // expired, but not ended
        CHECK(other.try_acquire_for("report", 10s).has_value());
    }
}

TEST_CASE("a grant to a thread that stopped waiting is released, however slow the statements are") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        client other{database.source(), database.options()};
        interception network;
        client slow{network.wrap(database.source()), database.options({.ttl = 60s})};
        auto job = holder.acquire("job");
        cancel_held_up cancel{network};
        CHECK_FALSE(slow.try_acquire("job"));  // opens its session
        wait_and_give_up(database, slow);
        REQUIRE(eventually([&] { return cancel.reached->load(); }));
        job.release();
        REQUIRE(served_to_ttl_60s(database));
        CHECK_FALSE(other.try_acquire("job"));
        network.before([](std::string_view) { std::this_thread::sleep_for(160ms); });
        cancel.go.set_value();
        CHECK(eventually([&] { return other.try_acquire("job").has_value(); }));
        network.before({});
    }
}

TEST_CASE("a call that stopped waiting does not count as waiting") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        const auto job = holder.acquire("job");
        interception network;
        client giving_up{network.wrap(database.source()), database.options()};
        cancel_held_up cancel{network};
        CHECK_FALSE(giving_up.try_acquire("job"));  // opens its session
        wait_and_give_up(database, giving_up);
        CHECK(giving_up.stats().waiting == 0);
        cancel.go.set_value();
        CHECK(support::places(database, 0));
        network.before({});
    }
}

TEST_CASE("a client that waits without events sends few statements") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client holder{database.source(), database.options()};
        const auto job = holder.acquire("job");
        interception network;
        const auto sent = std::make_shared<std::atomic<int>>(0);
        client waiter{network.wrap(database.source()), database.options({.ttl = 60s})};
        std::stop_source stop;
        auto waiting = std::async(std::launch::async, [&] {
            return waiter.try_acquire_for("job", 2min, stop.get_token()).has_value();
        });
        CHECK(support::places(database, 1));
        std::this_thread::sleep_for(1s);  // all connections are open and set up
        network.before([sent](std::string_view) { ++*sent; });
        const auto in_four_seconds = [&] {
            const int before = *sent;
            std::this_thread::sleep_for(4s);
            return *sent - before;
        };
        // One poll a second, and on MariaDB a sleep in the server every two seconds.
        const int too_many = database.speaks() == sql::dialect::mysql ? 9 : 6;
        CHECK(support::at_best(too_many, in_four_seconds) < too_many);
        network.before({});
        stop.request_stop();
        CHECK_FALSE(waiting.get());
    }
}

TEST_CASE("a SQLite file in a folder that does not exist is refused at once") {
    client locks{sqlite::open("sqlite:/nowhere/at/all.db")};
    try {
        (void)locks.try_acquire("job");
        FAIL("it was opened");
    } catch (const error& failure) {
        CHECK(failure.kind() == errc::invalid_url);
        CHECK(std::string{failure.what()}.find("/nowhere/at") != std::string::npos);
    }
    CHECK(locks.stats().retries == 0);
}
