// What takes a ttl, a margin or a limit to show, in simulated time: the client as it ships, on
// SQLite in memory, under some schedules each. Times are exact here: nothing stalls unless a case
// says so.

#define DOCTEST_CONFIG_IMPLEMENT
#include "database.hpp"
#include "mailbox.hpp"
#include "scheduler.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <sys/single_threaded.h>

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace {

using namespace rowlock;
using namespace std::chrono_literals;
using sim::i64;
using sim::second;
using sim::u64;
using steady = std::chrono::steady_clock;

/// A database, and two processes on two hosts: the case runs in the first.
struct stage {
    explicit stage(u64 seed)
        : world{seed, {}}, here{world.add_node(0, 1, second)}, there{world.add_node(1, 1, second)} {
        sim::start_anew();
        database.emplace();
    }

    [[nodiscard]] sql::connection_source source() { return database->source(); }

    /// Runs this as a thread of a process, to its end.
    void run(sim::node& home, const std::function<void()>& code) {
        std::exception_ptr failure;
        bool ended = false;
        world.spawn(
            home,
            [&] {
                try {
                    code();
                } catch (...) {
                    failure = std::current_exception();
                }
                ended = true;
                world.wake_all(&ended);
            },
            "case");
        if (world.current() == 0) {
            CHECK(world.run([&] { return ended; }, 100'000 * second));
        } else {
            while (!ended) world.block(&ended, sim::forever);
        }
        if (failure) std::rethrow_exception(failure);
    }

    /// In the other process: its threads connect from there.
    void other(const std::function<void()>& code) { run(there, code); }

    /// Statements of this name fail, those of the other process.
    void refuse(std::string_view name) {
        database->refuses = [this, name = std::string{name}](const sim::request& what) {
            return what.node == there.id && what.name == name;
        };
    }

    sim::scheduler world;
    sim::node& here;
    sim::node& there;
    std::optional<sim::database> database;
};

/// Under some schedules.
void simulated(const std::function<void(stage&)>& code) {
    for (u64 seed = 1; seed <= 5; ++seed) {
        stage one{seed};
        one.run(one.here, [&] { code(one); });
    }
}

/// Looks each millisecond.
bool eventually(const std::function<bool()>& holds, steady::duration limit = 1h) {
    const auto end = steady::now() + limit;
    while (!holds()) {
        if (steady::now() >= end) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

steady::duration time_until(const std::function<bool()>& holds) {
    const auto began = steady::now();
    REQUIRE(eventually(holds));
    return steady::now() - began;
}

errc kind_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const error& failure) {
        return failure.kind();
    }
    return errc{};
}

lease take(client& by, std::string_view name) {
    std::optional<lease> got;
    REQUIRE(eventually([&] { return (got = by.try_acquire(name)).has_value(); }));
    return std::move(*got);
}

// --- requests ------------------------------------------------------------------------------------

TEST_CASE("a holder that does not stop after a request keeps the lock for its margin at least") {
    simulated([](stage& on) {
        client holder{on.source(), {.ttl = 7s, .heartbeat = 100ms, .margin = 4s}};
        client asking{on.source()};
        const auto lease = holder.acquire("job");
        const auto asked = steady::now();
        const auto left = asking.request_release("job", lease.token());
        REQUIRE(left);
        REQUIRE(eventually([&] { return !lease.held(); }));
        CHECK(lease.lost().stop_requested());
        const auto lost = steady::now();
        const auto next = take(asking, "job");
        CHECK(steady::now() - lost >= 4s - 2ms);
        CHECK(steady::now() - asked <= *left + 10ms);
        CHECK(next.held());
    });
}

// Otherwise the client would note the revision, go on with its heartbeats, and lose the request.
TEST_CASE(
    "a holder that cannot read which release was requested loses its leases before the lock passes "
    "on") {
    simulated([](stage& on) {
        client asking{on.source()};
        on.other([&] {
            client holder{on.source(), {.ttl = 5s, .heartbeat = 100ms, .margin = 300ms}};
            const auto lease = holder.acquire("job");
            on.refuse("session_leases");
            REQUIRE(asking.request_release("job", lease.token()));
            const auto next = take(asking, "job");
            CHECK_FALSE(lease.held());
            CHECK(next.token() > lease.token());
        });
    });
}

// The deadline alone protects: a holder that does not know of the request stops believing before
// the database gives the lock away.
TEST_CASE("a holder that cannot read who asks stops before the lock passes on") {
    simulated([](stage& on) {
        client asking{on.source()};
        on.other([&] {
            client holder{on.source(), {.ttl = 5s, .heartbeat = 100ms, .margin = 300ms}};
            const auto lease = holder.acquire("job");
            on.refuse("session_leases");
            REQUIRE(asking.request_release("job", lease.token(), {.within = 1ms, .reason = "now"}));
            const auto next = take(asking, "job");
            CHECK_FALSE(lease.held());
            CHECK(next.token() > lease.token());
        });
    });
}

TEST_CASE("a holder that is asked to release within a time works on past its session's ttl") {
    simulated([](stage& on) {
        client holder{on.source(), {.ttl = 8s, .heartbeat = 100ms, .margin = 100ms}};
        client asking{on.source()};
        auto lease = holder.acquire("job");
        REQUIRE(asking.request_release("job", lease.token(), {.within = 30s, .reason = "x"}));
        REQUIRE(eventually([&] { return lease.release_requested().stop_requested(); }, 200ms));
        std::this_thread::sleep_for(29s);
        CHECK(lease.held());
        CHECK_FALSE(lease.lost().stop_requested());
        CHECK(lease.remaining() > 0ms);
        CHECK_FALSE(asking.try_acquire("job"));
        CHECK_NOTHROW(lease.release());
        // The next holder has nothing to do with it.
        const auto next = take(asking, "job");
        CHECK_FALSE(next.release_requested().stop_requested());
    });
}

TEST_CASE("a holder that does not release within the time loses the lease, and has its margin") {
    simulated([](stage& on) {
        client holder{on.source(), {.ttl = 12s, .heartbeat = 100ms, .margin = 3s}};
        client asking{on.source()};
        const auto lease = holder.acquire("job");
        const auto asked = steady::now();
        REQUIRE(asking.request_release("job", lease.token(), {.within = 13s, .reason = "backup"}));
        REQUIRE(eventually([&] { return lease.release_requested().stop_requested(); }));
        CHECK(lease.held());
        CHECK(lease.remaining() <= 10s);
        REQUIRE(eventually([&] { return lease.lost().stop_requested(); }));
        CHECK(steady::now() - asked > 9900ms);
        const auto lost = steady::now();
        const auto next = take(asking, "job");
        CHECK(steady::now() - lost >= 3s - 2ms);
        CHECK(steady::now() - asked <= 13s + 10ms);
        CHECK(next.held());
    });
}

TEST_CASE("a request outlives an extension, and the hold ends within its time") {
    simulated([](stage& on) {
        client holder{on.source(), {.ttl = 10s, .heartbeat = 50ms, .margin = 200ms}};
        client asking{on.source()};
        auto held = holder.acquire("job", {.max_duration = 1min});
        held.extend(1h);
        const auto token = asking.inspect("job")->token;
        const auto asked = steady::now();
        REQUIRE(asking.request_release("job", token, {.within = 11s, .reason = "x"}));
        REQUIRE(eventually([&] { return held.release_requested().stop_requested(); }));
        CHECK(kind_of([&] { held.extend(1h); }) == errc::invalid_options);
        REQUIRE(eventually([&] { return !held.held(); }));
        CHECK(steady::now() - asked > 10s);
        CHECK(steady::now() - asked < 11s);
    });
}

// --- forced releases -----------------------------------------------------------------------------

// The rows that tell of requests tell of this as well: no later read is needed.
// shows: fault-break-now
TEST_CASE("a holder learns of a forced release with its next heartbeat, whatever fails after it") {
    simulated([](stage& on) {
        client asking{on.source()};
        on.other([&] {
            client holder{on.source(),
                          {.ttl = 6s, .heartbeat = 100ms, .wake_ups = wakeup_mode::polling}};
            const auto lease = holder.acquire("job");
            REQUIRE(eventually([&] { return holder.stats().heartbeats > 1; }));
            on.refuse("entries");
            REQUIRE(asking.force_release("job", lease.token()));
            CHECK(eventually([&] { return lease.lost().stop_requested(); }, 110ms));
            CHECK_FALSE(lease.held());
        });
    });
}

TEST_CASE("a holder that learns of its grant after a request for it keeps its whole margin") {
    simulated([](stage& on) {
        client before{on.source()};
        client holder{on.source(),
                      {.ttl = 7s,
                       .heartbeat = 100ms,
                       .margin = 4s,
                       .poll_interval = 2s,
                       .wake_ups = wakeup_mode::polling}};
        client asking{on.source()};
        auto first = before.acquire("job");
        std::optional<lease> got;
        std::thread waits{[&] { got = holder.acquire("job"); }};
        REQUIRE(eventually([&] { return asking.waiters("job").size() == 1; }));
        first.release();
        REQUIRE(asking.request_release("job", fencing_token{first.token().value() + 1}));
        waits.join();
        REQUIRE(eventually([&] { return got->lost().stop_requested(); }));
        const auto lost = steady::now();
        (void)take(asking, "job");
        CHECK(steady::now() - lost >= 4s - 2ms);
    });
}

// --- limits --------------------------------------------------------------------------------------

// shows: promise-19, fault-max-hold
TEST_CASE("a holder that does not stop after max_hold keeps the lock for its margin at least") {
    simulated([](stage& on) {
        client holder{on.source(), {.ttl = 7s, .heartbeat = 100ms, .margin = 4s}};
        client other{on.source(), {.reaper = reaper_options{.interval = 1s}}};
        (void)other.acquire("warm up");  // the reaper begins with its session
        other.set_max_hold("job", 1min);
        const auto began = steady::now();
        const auto lease = holder.acquire("job");
        REQUIRE(eventually([&] { return lease.lost().stop_requested(); }));
        const auto lost = steady::now();
        // The limit, and a round.
        CHECK(lost - began >= 1min);
        CHECK(lost - began <= 1min + 1100ms);
        const auto next = take(other, "job");
        CHECK(steady::now() - lost >= 4s - 2ms);
        CHECK(steady::now() - began <= 1min + 1s + 7s + 20ms);
        CHECK(next.token() > lease.token());
    });
}

// --- deadlines -----------------------------------------------------------------------------------

// shows: promise-5
TEST_CASE("a lease with its own deadline goes to the next holder at that deadline, not before") {
    simulated([](stage& on) {
        client holder{on.source()};
        client other{on.source(), {.poll_interval = 10ms}};
        (void)holder.acquire("warm up");
        const auto began = steady::now();
        const auto lease = holder.acquire("job", {.max_duration = 18s});
        REQUIRE(eventually([&] { return lease.lost().stop_requested(); }));
        CHECK(steady::now() - began >= 15s);  // a sixth of it is the margin
        CHECK(steady::now() - began <= 15s + 2ms);
        CHECK(holder.stats().held == 0);
        const auto next = other.acquire("job");
        CHECK(steady::now() - began >= 18s);
        CHECK(steady::now() - began <= 18s + 20ms);
    });
}

// shows: promise-5
TEST_CASE("a lease that was lost at its own deadline is free as soon as its holder has stopped") {
    simulated([](stage& on) {
        client holder{on.source(), {.ttl = 60s}};
        client other{on.source()};
        auto released = holder.acquire("released", {.max_duration = 18s});
        std::optional<lease> destroyed{holder.acquire("destroyed", {.max_duration = 18s})};
        const auto kept = holder.acquire("kept", {.max_duration = 18s});
        REQUIRE(eventually([&] { return kept.lost().stop_requested(); }));
        CHECK(kind_of([&] { released.release(); }) == errc::lock_lost);
        destroyed.reset();
        CHECK(other.try_acquire_for("released", 20ms));
        CHECK(other.try_acquire_for("destroyed", 20ms));
        CHECK_FALSE(other.try_acquire_for("kept", 2900ms));
        CHECK(other.try_acquire_for("kept", 200ms));
    });
}

// --- a client that is cut off --------------------------------------------------------------------

// shows: promise-5
TEST_CASE("a lease lost in a short outage goes to the next holder only after the whole margin") {
    simulated([](stage& on) {
        client waiting{on.source(), {.poll_interval = 10ms}};
        on.other([&] {
            client holder{on.source(), {.ttl = 6s, .heartbeat = 300ms, .margin = 4s}};
            const auto lease = holder.acquire("job");
            on.database->sky.cut_off = {on.there.id};
            REQUIRE(eventually([&] { return lease.lost().stop_requested(); }));
            CHECK_FALSE(lease.held());
            // It is back at once.
            on.database->sky.cut_off = {};
            std::thread another{[&] { CHECK(holder.acquire("other job").held()); }};
            CHECK(time_until([&] { return waiting.try_acquire("job").has_value(); }) >= 4s - 2ms);
            another.join();
        });
    });
}

// shows: promise-5
TEST_CASE("a holder that has stopped ends the margin of a lost session early") {
    simulated([](stage& on) {
        client waiting{on.source()};
        on.other([&] {
            client holder{on.source(), {.ttl = 30s, .heartbeat = 100ms, .margin = 20s}};
            std::optional<lease> held{holder.acquire("job")};
            rowlock::mutex plain{holder, "plain"};
            plain.lock();
            on.database->sky.cut_off = {on.there.id};
            REQUIRE(eventually([&] { return held->lost().stop_requested(); }));
            on.database->sky.cut_off = {};
            held.reset();
            // Another lease of that session is still worked under.
            CHECK_FALSE(waiting.try_acquire_for("job", 5s));
            plain.unlock();
            CHECK(waiting.try_acquire_for("job", 2s));
            CHECK(waiting.try_acquire_for("plain", 20ms));
        });
    });
}

}  // namespace

int main(int argc, char** argv) {
    __libc_single_threaded = 0;  // as in simulate.cpp
    sim::prepare_databases();
    return doctest::Context{argc, argv}.run();
}
