// Requested releases: the holder learns of the request and stops, and only then the next one
// follows.

#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
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

std::thread::id network_thread;

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
        client holder{database.source(), database.options({.ttl = 40s, .heartbeat = 100ms})};
        client asking{database.source(), database.options()};
        auto lease = holder.acquire("job");
        const auto bystander = holder.acquire("other");
        const auto lost = lease.lost();

        const auto left = asking.request_release("job", lease.token());
        REQUIRE(left);
        CHECK(*left > 30s);
        CHECK(*left <= 40s);
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
        CHECK(steady::now() - start < 15s);
        CHECK(bystander.held());
    }
}

ROWLOCK_SIMULATED_CASE("a holder that destroys its requested lease hands the lock to the waiter",
                       database) {
    client holder{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
    client other{database.source(), database.options({.ttl = 20s})};
    std::optional<lease> held{holder.acquire("job")};
    std::optional<lease> served;
    std::jthread waiting{[&] { served = other.try_acquire_for("job", support::patience); }};
    REQUIRE(eventually([&] { return other.waiters("job").size() == 1; }));
    REQUIRE(other.request_release("job", held->token()));
    REQUIRE(eventually([&] { return !held->held(); }));
    held.reset();
    waiting.join();
    REQUIRE(served);
    CHECK(served->held());
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

TEST_CASE("a requested hold whose own deadline comes first is held until then") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options({.ttl = 60s, .heartbeat = 100ms})};
        client asking{database.source(), database.options()};
        const auto brief = holder.acquire("brief", {.max_duration = 40s});
        const auto reading =
            shared_mutex{holder, "page"}.acquire(lock_mode::shared, {.max_duration = 40s});
        REQUIRE(shared_mutex{asking, "page"}.request_release(reading.token()));
        const auto longer = holder.acquire("long", {.max_duration = 1h});
        const auto left = asking.request_release("brief", brief.token());
        REQUIRE(left);
        CHECK(*left <= 40s);
        REQUIRE(asking.request_release("long", longer.token()));
        CHECK(eventually([&] { return !longer.held(); }));
        CHECK(brief.held());
        CHECK(reading.held());
    }
}

TEST_CASE("a holder that is asked to release within a time works on, and learns who asks and why") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        support::event_log events;
        client holder{
            database.source(),
            database.options(
                {.ttl = 8s, .heartbeat = 100ms, .margin = 100ms, .on_event = events.callback()})};
        client asking{database.source(), database.options({.program = "operator"})};
        auto lease = holder.acquire("job");
        const auto bystander = holder.acquire("other");
        const auto requested = lease.release_requested();
        CHECK_FALSE(lease.release_request().has_value());
        const auto left =
            asking.request_release("job", lease.token(), {.within = 30s, .reason = "a deployment"});
        REQUIRE(left);
        CHECK(*left > 25s);
        CHECK(*left <= 30s);
        CHECK(eventually([&] { return requested.stop_requested(); }));
        const auto request = lease.release_request();
        REQUIRE(request);
        CHECK(request->asked_by.starts_with("operator, pid "));
        CHECK(request->reason == "a deployment");
        CHECK(eventually([&] { return events.has(event_kind::release_requested); }));
        CHECK_FALSE(bystander.release_requested().stop_requested());
        CHECK(lease.held());
        CHECK_FALSE(lease.lost().stop_requested());
        CHECK(lease.remaining() > 0ms);
        CHECK_FALSE(asking.try_acquire("job"));
        const auto seen = asking.inspect("job");
        REQUIRE(seen);
        REQUIRE(seen->holder);
        REQUIRE(seen->holder->asked);
        CHECK(seen->holder->asked->reason == "a deployment");
        CHECK_NOTHROW(lease.release());
        // The next holder has nothing to do with it.
        const auto next = take(asking, "job");
        CHECK_FALSE(next.release_requested().stop_requested());
        CHECK_FALSE(holder.inspect("job")->holder->asked.has_value());
    }
}

ROWLOCK_SIMULATED_CASE(
    "a shorter request replaces a longer one, and one without a time ends the lease", database) {
    client holder{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
    client asking{database.source(), database.options()};
    const auto lease = holder.acquire("job");
    const auto first =
        asking.request_release("job", lease.token(), {.within = 1h, .reason = "first"});
    REQUIRE(first);
    CHECK(*first > 50min);
    REQUIRE(eventually([&] { return lease.release_requested().stop_requested(); }));
    const auto second =
        asking.request_release("job", lease.token(), {.within = 2h, .reason = "second"});
    REQUIRE(second);
    CHECK(*second <= *first);
    CHECK(eventually([&] { return lease.release_request()->reason == "second"; }));
    CHECK(lease.held());
    const auto third =
        asking.request_release("job", lease.token(), {.within = 10min, .reason = "third"});
    REQUIRE(third);
    CHECK(*third <= 10min);
    CHECK(eventually([&] { return lease.release_request()->reason == "third"; }));
    CHECK(lease.held());
    REQUIRE(asking.request_release("job", lease.token()));
    CHECK(eventually([&] { return !lease.held(); }));
}

ROWLOCK_SIMULATED_CASE("holders of permits and modes are asked for them within a time, each alone",
                       database) {
    client holder{database.source(),
                  database.options({.ttl = 8s, .heartbeat = 100ms, .margin = 300ms})};
    client asking{database.source(), database.options()};
    semaphore limit{holder, "limit"};
    limit.create(3);
    shared_mutex page{holder, "page"};
    auto one = limit.acquire(1);
    auto other = limit.acquire(2);
    auto reading = page.acquire(lock_mode::upgradeable);
    const auto asked = steady::now();
    REQUIRE(
        semaphore{asking, "limit"}.request_release(one.token(), {.within = 3s, .reason = "quota"}));
    REQUIRE(shared_mutex{asking, "page"}.request_release(reading.token(),
                                                         {.within = 1h, .reason = "edit"}));
    REQUIRE(eventually([&] {
        return one.release_requested().stop_requested() &&
               reading.release_requested().stop_requested();
    }));
    const bool held_on = one.held();
    if (steady::now() - asked < 2s) CHECK(held_on);  // a stall may outlast the hold
    CHECK(reading.held());
    CHECK(one.release_request()->reason == "quota");
    CHECK(reading.release_request()->reason == "edit");
    CHECK_FALSE(other.release_requested().stop_requested());
    CHECK(eventually([&] { return !one.held(); }));
    CHECK(other.held());
    CHECK(reading.held());
    CHECK(eventually([&] {
        return asking.inspect("page").has_value() ||
               semaphore{asking, "limit"}.inspect()->used == 2;
    }));
    reading.release();
}

ROWLOCK_SIMULATED_CASE("a request outlives an extension whose answer comes late", database) {
    interception network;
    client holder{network.wrap(database.source()),
                  database.options({.ttl = 10s, .heartbeat = 50ms, .margin = 200ms})};
    client asking{database.source(), database.options()};
    semaphore limit{holder, "limit"};
    limit.create(1);
    auto held = limit.acquire(1, {.max_duration = 1min});
    std::atomic<bool> once{false};
    network.after([&](std::string_view what) {
        // The extension is committed, and its caller does not know.
        if (what != "commit" || std::this_thread::get_id() != network_thread) return;
        if (once.exchange(true)) return;
        REQUIRE(semaphore{asking, "limit"}.request_release(held.token(),
                                                           {.within = 11s, .reason = "x"}));
        REQUIRE(eventually([&] { return held.release_requested().stop_requested(); }));
    });
    network_thread = std::this_thread::get_id();
    held.extend(1h);
    CHECK(once);
    CHECK(held.held());
    CHECK(kind_of([&] { held.extend(1h); }) == errc::invalid_options);
    CHECK(held.held());
    CHECK(eventually([&] { return !held.held(); }, 40s));
}

TEST_CASE("a request that allows more than a lease has left takes nothing of it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(),
                      database.options({.ttl = 60s, .heartbeat = 100ms, .margin = 20s})};
        client asking{database.source(), database.options()};
        const auto lease = holder.acquire("job", {.max_duration = 30s});
        REQUIRE(asking.request_release("job", lease.token(), {.within = 1h, .reason = "x"}));
        REQUIRE(eventually([&] { return lease.release_requested().stop_requested(); }));
        CHECK(lease.held());
        CHECK(lease.remaining() > 15s);  // 30 s less a sixth, not less 20 s
    }
}

TEST_CASE("what cannot be asked for is refused") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        const auto refused = [&](const request_options& terms) {
            return kind_of([&] {
                       static_cast<void>(locks.request_release("job", lease.token(), terms));
                   }) == errc::invalid_options;
        };
        CHECK(refused({.within = -1ms}));
        CHECK(refused({.within = 24h * 367}));
        CHECK(refused({.within = 1h, .reason = std::string(1001, 'x')}));
        CHECK(lease.held());
    }
}

static_assert(!std::is_constructible_v<lock_name, std::nullptr_t>);
static_assert(!std::is_convertible_v<std::nullptr_t, lock_name>);

TEST_CASE("a null pointer is not a lock's name") {
    const char* const none = nullptr;
    CHECK(kind_of([&] { lock_name{none}; }) == errc::invalid_name);
}
