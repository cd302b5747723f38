// Waiting through an outage: lost sessions, a database that is unreachable or full, and time
// limits.

#include "support/at_end.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::eventually;
using support::interception;
using support::kind_of;
using support::places;
using steady = std::chrono::steady_clock;

namespace {

/// A generous bound for "at once" in tests whose next poll is seconds away.
constexpr auto at_once = 8s;

/// Counts a client's events.
class listener {
public:
    event_callback callback() {
        return [this](const event& what) {
            if (what.kind == event_kind::queue_entry_lost) ++entries_lost;
            if (what.kind == event_kind::session_ended) ++sessions_ended;
            if (what.kind == event_kind::waiting && !what.message.empty()) ++refusals;
        };
    }
    std::atomic<int> entries_lost{0};
    std::atomic<int> sessions_ended{0};
    std::atomic<int> refusals{0};
};

void end_session_of(support::lock_database& database, const std::string& owner) {
    database.run(std::string{"update rowlock_session set ended = "} +
                 (database.speaks() == sql::dialect::postgresql ? "true" : "1") +
                 " where owner = '" + owner + "'");
}

/// A database that one client cannot reach while it is `away`.
class outage {
public:
    outage() {
        network_.before([this](std::string_view) {
            if (!away_) return;
            latest_ = steady::now();
            ++refused_;
            interception::refuse_to_send();
        });
    }
    sql::connection_source wrap(const sql::connection_source& source) {
        return network_.wrap(source);
    }
    void begin() { away_ = true; }
    void end() { away_ = false; }
    [[nodiscard]] int refused() const { return refused_; }
    [[nodiscard]] steady::time_point latest() const { return latest_; }

private:
    interception network_;
    std::atomic<bool> away_{false};
    std::atomic<int> refused_{0};
    std::atomic<steady::time_point> latest_{};
};

/// Ends its retries long before the outages below end.
retry_policy impatient() {
    return {.attempts = 2, .backoff = 10ms, .max_backoff = 20ms, .total = 100ms};
}

}  // namespace

ROWLOCK_SIMULATED_CASE(
    "a waiter whose session was ended goes to the end of the queue, and an event reports it",
    database) {
    client holder{database.source(), database.options()};
    auto held = holder.acquire("job");
    listener heard;
    client first{database.source(),
                 database.watchful({.owner = "first", .on_event = heard.callback()})};
    client second{database.source(), database.options()};
    auto one = std::async(std::launch::async, [&] { return acquire_soon(first, "job"); });
    REQUIRE(places(database, 1));
    auto two = std::async(std::launch::async, [&] { return acquire_soon(second, "job"); });
    REQUIRE(places(database, 2));
    end_session_of(database, "first");
    REQUIRE(eventually([&] { return first.stats().queued == 2; }));
    CHECK(eventually([&] { return heard.entries_lost == 1; }));
    held.release();
    auto next = two.get();
    CHECK(next.held());
    CHECK(one.wait_for(0s) == std::future_status::timeout);
    next.release();
    CHECK(one.get().held());
    CHECK(first.stats().sessions == 2);
}

ROWLOCK_SIMULATED_CASE(
    "a waiter whose session was ended fails with when_cut_off::fail, or if it holds another "
    "lease",
    database) {
    client holder{database.source(), database.options()};
    auto held = holder.acquire("job");
    const auto wait_until_ended = [&](client& waiter, bool holds) {
        auto waiting = std::async(std::launch::async, [&] {
            std::optional<lease> other;
            if (holds) other.emplace(waiter.acquire("other"));
            return kind_of([&] { static_cast<void>(acquire_soon(waiter, "job")); });
        });
        REQUIRE(places(database, 1));
        end_session_of(database, "waiter");
        CHECK(waiting.get() == errc::lock_lost);
    };
    SUBCASE("when_cut_off::fail") {
        client waiter{database.source(),
                      database.watchful({.when_cut_off = when_cut_off::fail, .owner = "waiter"})};
        wait_until_ended(waiter, false);
    }
    SUBCASE("its thread holds another lease") {
        client waiter{database.source(), database.watchful({.owner = "waiter"})};
        wait_until_ended(waiter, true);
    }
}

ROWLOCK_SIMULATED_CASE("a waiter outlasts an outage that outlasts its session and the retries",
                       database) {
    client holder{database.source(), database.options({.ttl = 60s})};
    auto held = holder.acquire("job");
    outage network;
    listener heard;
    client waiter{
        network.wrap(database.source()),
        database.options(
            {.ttl = 4s, .heartbeat = 300ms, .on_event = heard.callback(), .retry = impatient()})};
    auto waiting = std::async(std::launch::async, [&] { return acquire_soon(waiter, "job"); });
    REQUIRE(places(database, 1));
    REQUIRE(eventually([&] { return waiter.stats().queued >= 1; }));
    network.begin();
    const bool gave_up_often = eventually([&] { return heard.refusals >= 1; });
    const auto retried = waiter.stats().retries;
    const bool goes_on = eventually([&] { return waiter.stats().retries > retried + 2; });
    network.end();
    CHECK(gave_up_often);
    CHECK(goes_on);
    // A machine that stalls may cost the next session, too.
    CHECK(heard.entries_lost >= 1);
    CHECK(eventually([&] { return waiter.stats().queued >= 2; }));
    CHECK(waiting.wait_for(0s) == std::future_status::timeout);
    CHECK(held.held());
    held.release();
    // At the latest when the lost session has expired, if its queue entry was served.
    CHECK(waiting.get().held());
}

ROWLOCK_SIMULATED_CASE("a stop and a time limit end a wait that an outage has cut off", database) {
    client holder{database.source(), database.options({.ttl = 60s})};
    auto held = holder.acquire("job");
    outage network;
    listener heard;
    client waiter{
        network.wrap(database.source()),
        database.options({.ttl = 500ms, .on_event = heard.callback(), .retry = impatient()})};
    SUBCASE("a stop") {
        std::stop_source stop;
        auto waiting =
            std::async(std::launch::async, [&] { return waiter.acquire("job", stop.get_token()); });
        const support::at_end stops{[&] { stop.request_stop(); }};
        REQUIRE(places(database, 1));
        network.begin();
        CHECK(eventually([&] { return heard.refusals >= 1; }));
        const auto from = steady::now();
        stop.request_stop();
        CHECK_FALSE(waiting.get());
        CHECK(steady::now() - from < at_once);
    }
    SUBCASE("a time limit") {
        constexpr auto limit = 5s;
        steady::time_point from;
        steady::time_point over;
        auto waiting = std::async(std::launch::async, [&] {
            from = steady::now();
            const auto kind =
                kind_of([&] { static_cast<void>(waiter.try_acquire_for("job", limit)); });
            over = steady::now();
            return kind;
        });
        REQUIRE(places(database, 1));
        network.begin();
        CHECK(waiting.get() == errc::database_unreachable);
        CHECK(over - from > limit / 2);
        CHECK(over - from < limit + at_once);
    }
    network.end();
}

ROWLOCK_SIMULATED_CASE(
    "no attempt of a timed call starts after its limit; control: before the limit one does",
    database) {
    constexpr auto limit = 3s;
    interception network;
    client locks{network.wrap(database.source()), database.options()};
    client other{database.source(), database.options()};
    locks.try_acquire("warm")->release();
    const auto caller = std::this_thread::get_id();
    std::atomic<int> late{0};
    bool stalled = false;
    steady::time_point until{};
    network.before([&](std::string_view) {
        if (std::this_thread::get_id() == caller && stalled && steady::now() > until) ++late;
    });
    // The reply to the first statement is lost, after the limit.
    network.after([&](std::string_view) {
        if (std::this_thread::get_id() != caller || std::exchange(stalled, true)) return;
        std::this_thread::sleep_until(until + 50ms);
        interception::lose_reply();
    });
    until = steady::now() + limit;
    CHECK(kind_of([&] { static_cast<void>(locks.try_acquire_until("job", until)); }) ==
          errc::outcome_unknown);
    CHECK(late == 0);
    stalled = false;
    until = steady::now() + 50ms;
    const auto again = locks.try_acquire_for("another job", 20s);
    CHECK(again);
    CHECK(late > 0);
    network.before({});
    network.after({});
    // A lease that may have been granted is released.
    CHECK(acquire_soon(other, "job").held());
    // A try is limited only by the number of retries.
    stalled = true;
    CHECK(locks.try_acquire("free"));
}

// On SQLite, whose one writer locks the whole file.
ROWLOCK_SIMULATED_CASE(
    "a client whose rollback was not answered, and whose session is over since, locks no row",
    database) {
    if (database.speaks() != sql::dialect::sqlite) return;
    std::atomic<bool> stalls{false}, lost{false};
    interception network;
    client holder{network.wrap(database.source()),
                  database.options(
                      {.ttl = 3s, .heartbeat = 500ms, .margin = 200ms, .retry = {.attempts = 1}})};
    client other{database.source(), database.options()};
    semaphore api{holder, "api"};
    api.set_capacity(1);
    auto held = api.acquire();
    network.before([&, caller = std::this_thread::get_id()](std::string_view what) {
        if (lost) return;
        if (what == "delete_permit") throw error{errc::out_of_resources, "the disk is full"};
        if (stalls && what == "heartbeat") interception::refuse_to_send();
        if (what != "rollback" || std::this_thread::get_id() == caller) return;
        stalls = true;
        std::this_thread::sleep_for(4s);  // the watchdog ends the session meanwhile
        lost = true;
        interception::refuse_to_send();
    });
    CHECK(kind_of([&] { held.release(); }) == errc::out_of_resources);
    REQUIRE(eventually([&] { return lost.load(); }));
    CHECK(eventually([&] { return kind_of([&] { other.acquire("job").release(); }) == errc{}; }));
}
