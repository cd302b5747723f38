// Requested releases: the holder learns of the request and stops, and only then the next one
// follows.

#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using steady = std::chrono::steady_clock;

namespace {

/// Looks for the lock until it is free.
lease take(client& by, std::string_view name) {
    std::optional<lease> got;
    REQUIRE(eventually([&] { return (got = by.try_acquire(name)).has_value(); }));
    return std::move(*got);
}

}  // namespace

TEST_CASE(
    "a requested release ends only that lease, and the next holder follows once its holder has "
    "stopped") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
        client asking{database.source(), database.options()};
        auto lease = holder.acquire("job");
        const auto bystander = holder.acquire("other");
        const auto lost = lease.lost();

        const auto left = asking.request_release("job", lease.token());
        REQUIRE(left);
        CHECK(*left > 10s);
        CHECK(*left <= 20s);
        CHECK(eventually([&] { return lost.stop_requested(); }));
        CHECK_FALSE(lease.held());
        CHECK(bystander.held());
        // The holder has not stopped yet.
        CHECK_FALSE(asking.try_acquire("job"));
        CHECK(asking.inspect("job")->token == lease.token());

        const auto start = steady::now();
        CHECK(kind_of([&] { lease.release(); }) == errc::lock_lost);
        const auto next = take(asking, "job");
        CHECK(next.token() > lease.token());
        CHECK(steady::now() - start < 5s);
        CHECK(bystander.held());
    }
}

TEST_CASE("a holder that destroys its requested lease hands the lock to the waiter") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
        client other{database.source(), database.options({.ttl = 20s})};
        std::optional<lease> held{holder.acquire("job")};
        std::optional<lease> served;
        std::jthread waiting{[&] { served = other.try_acquire_for("job", 15s); }};
        REQUIRE(eventually([&] { return other.waiters("job").size() == 1; }));
        REQUIRE(other.request_release("job", held->token()));
        REQUIRE(eventually([&] { return !held->held(); }));
        held.reset();
        waiting.join();
        REQUIRE(served);
        CHECK(served->held());
    }
}

TEST_CASE("a holder that does not stop after a request keeps the lock for its margin at least") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(),
                      database.options({.ttl = 1500ms, .heartbeat = 100ms, .margin = 500ms})};
        client asking{database.source(), database.options()};
        const auto lease = holder.acquire("job");
        const auto asked = steady::now();
        const auto left = asking.request_release("job", lease.token());
        REQUIRE(left);
        REQUIRE(eventually([&] { return !lease.held(); }));
        const auto lost = steady::now();
        const auto next = take(asking, "job");
        CHECK(steady::now() - lost >= 400ms);  // it was lost before the test saw it
        CHECK(steady::now() - asked < *left + 5s);
        CHECK(next.held());
    }
}

// Otherwise the client would note the revision, go on with its heartbeats, and lose the request.
TEST_CASE(
    "a holder that cannot read which release was requested loses its leases before the lock passes "
    "on") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        network.before([](std::string_view name) {
            if (name == "session_leases") throw error{errc::timed_out, "made by the test"};
        });
        client holder{network.wrap(database.source()),
                      database.options({.ttl = 1500ms, .heartbeat = 100ms, .margin = 300ms})};
        client asking{database.source(), database.options()};
        const auto lease = holder.acquire("job");
        REQUIRE(asking.request_release("job", lease.token()));
        const auto next = take(asking, "job");
        CHECK_FALSE(lease.held());
        CHECK(next.token() > lease.token());
    }
}

TEST_CASE("a request is for one grant, and may be repeated") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options({.ttl = 20s})};
        client asking{database.source(), database.options()};
        CHECK_FALSE(asking.request_release("job", fencing_token{1}));
        const auto lease = holder.acquire("job");
        CHECK_FALSE(asking.request_release("job", fencing_token{lease.token().value() + 1}));
        CHECK(lease.held());
        const auto first = asking.request_release("job", lease.token());
        const auto again = asking.request_release("job", lease.token());
        REQUIRE((first && again));
        CHECK(*again <= *first);
    }
}

TEST_CASE("a requested lease whose own deadline comes first is held until then") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options({.ttl = 60s, .heartbeat = 100ms})};
        client asking{database.source(), database.options()};
        const auto brief = holder.acquire("brief", {.max_duration = 40s});
        const auto longer = holder.acquire("long", {.max_duration = 1h});
        const auto left = asking.request_release("brief", brief.token());
        REQUIRE(left);
        CHECK(*left <= 40s);
        REQUIRE(asking.request_release("long", longer.token()));
        CHECK(eventually([&] { return !longer.held(); }));
        CHECK(brief.held());
    }
}

static_assert(!std::is_constructible_v<lock_name, std::nullptr_t>);
static_assert(!std::is_convertible_v<std::nullptr_t, lock_name>);

TEST_CASE("a null pointer is not a lock's name") {
    const char* const none = nullptr;
    CHECK(kind_of([&] { lock_name{none}; }) == errc::invalid_name);
}
