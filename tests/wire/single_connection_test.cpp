// client_options::single_connection: calls, waiting and heartbeats on one connection.

#include "lock/wakeup/hint.hpp"
#include "support/failure.hpp"
#include "support/hints.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include "support/server_address.hpp"
#include "support/tcp_relay.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/sql/forwarding_connection.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::at_best;
using support::eventually;
using support::places;
using support::soon;
using steady = std::chrono::steady_clock;

namespace {

/// Less than every pause, poll interval and deadline that would find a grant in these tests.
constexpr auto at_once = 8s;

/// The number of open connections, and their greatest number so far.
struct counted {
    std::atomic<int> open{0};
    std::atomic<int> most{0};
};

/// Counts one connection as open while it lives.
class counted_as_open {
public:
    explicit counted_as_open(std::shared_ptr<counted> count) : count_{std::move(count)} {
        const int now = ++count_->open;
        int most = count_->most;
        while (most < now && !count_->most.compare_exchange_weak(most, now)) {
        }
    }
    counted_as_open(const counted_as_open&) = delete;
    counted_as_open& operator=(const counted_as_open&) = delete;
    ~counted_as_open() { --count_->open; }

private:
    const std::shared_ptr<counted> count_;
};

/// The first base is destroyed last: the connection counts until it is closed.
class counted_connection final : private counted_as_open, public sql::forwarding_connection {
public:
    counted_connection(std::unique_ptr<sql::connection> inner, std::shared_ptr<counted> count)
        : counted_as_open{std::move(count)}, forwarding_connection{std::move(inner)} {}
};

sql::connection_source counting(const sql::connection_source& source,
                                const std::shared_ptr<counted>& count) {
    return sql::connection_source{
        source.speaks(),
        [source, count](sql::deadline until) -> std::unique_ptr<sql::connection> {
            return std::make_unique<counted_connection>(source.connect(until), count);
        },
        "counted"}
        .with_tables(source.tables());
}

/// Waits behind a holder, is granted, holds for some heartbeats and releases. Returns the number of
/// connections used.
int connections_used(support::lock_database& database, bool single) {
    client holder{database.source(), database.options()};
    auto held = holder.acquire("job");
    const auto count = std::make_shared<counted>();
    {
        client one{
            counting(database.source(), count),
            // A heartbeat that is late by a quarter of its period opens a second connection.
            database.options(
                {.ttl = 24s, .heartbeat = single ? 1000ms : 200ms, .single_connection = single})};
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(one, "job"); });
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return one.stats().heartbeats >= 1; }));
        CHECK(one.stats().sessions == 1);
        held.release();
        auto mine = waiting.get();
        const auto beats = one.stats().heartbeats;
        REQUIRE(eventually([&] { return one.stats().heartbeats >= beats + 1; }));
        CHECK(mine.held());
        mine.release();
        CHECK(one.stats().lost == 0);
    }
    CHECK(count->open == 0);
    return count->most;
}

}  // namespace

TEST_CASE(
    "a client with a single connection waits, holds and releases on one; by default on three") {
    ROWLOCK_FOR_A_CLIENT(database) {
        CHECK(at_best(2, [&] { return connections_used(database, true); }) == 1);
        CHECK(connections_used(database, false) >= 3);
    }
}

TEST_CASE("a waiter with a single connection is woken by PostgreSQL, and by its poll on MariaDB") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        client holder{database.source(), database.options({.wake_ups = wakeup_mode::database})};
        client waiter{
            database.source(),
            database.options({.ttl = 60s,
                              .heartbeat = 100ms,  // a heartbeat may read the waiter's notification
                              .poll_interval = postgresql ? 30'000ms : 100ms,
                              .wake_ups = wakeup_mode::database,
                              .single_connection = true})};
        for (int i = 0; i < 5; ++i) {
            auto held = holder.acquire("job");
            auto waiting = std::async(std::launch::async, [&] {
                auto got = acquire_soon(waiter, "job");
                return std::pair{std::move(got), steady::now()};
            });
            REQUIRE(places(database, 1));
            const auto polls = waiter.stats().polls;
            CHECK(eventually([&] { return waiter.stats().polls > polls || postgresql; }));
            const auto from = steady::now();
            held.release();
            const auto [got, at] = waiting.get();
            CHECK(at - from < at_once);
        }
    }
}

TEST_CASE("a locked row delays no heartbeat on a single connection") {
    ROWLOCK_FOR_A_CLIENT(database) {
        client locks{database.source(),
                     database.options({.ttl = 4s, .heartbeat = 500ms, .single_connection = true})};
        locks.acquire("row").release();
        const auto held = locks.acquire("job");
        auto& other = database.admin();
        other.query("begin", soon());
        database.run("select token from rowlock_lock where name = 'row' for update");
        // Longer than the ttl. Without short lock timeouts each attempt would take a statement
        // timeout.
        std::atomic<bool> done{false};
        auto trying = std::async(std::launch::async, [&] {
            while (!done) {
                static_cast<void>(
                    support::kind_of([&] { static_cast<void>(locks.try_acquire_for("row", 1s)); }));
            }
        });
        const auto beats = locks.stats().heartbeats;
        CHECK(eventually([&] { return locks.stats().heartbeats >= beats + 10; }, 40s));
        CHECK(held.held());
        CHECK(locks.stats().lost == 0);
        other.query("rollback", soon());
        done = true;
        trying.get();
        CHECK(locks.stats().sessions == 1);
    }
}

TEST_CASE("a single connection that stalls costs no lease: the heartbeat opens another") {
    ROWLOCK_FOR_A_CLIENT(database) {
        auto address = contract::address_of(database.speaks() == sql::dialect::postgresql
                                                ? support::server::postgresql
                                                : support::server::mariadb);
        support::tcp_relay link{address.port};
        address.host = "127.0.0.1";
        address.port = link.port();
        client locks{database.at(address.url()), database.options({.ttl = 15s,
                                                                   .heartbeat = 500ms,
                                                                   .statement_timeout = 20s,
                                                                   .single_connection = true})};
        const auto held = locks.acquire("job");
        REQUIRE(eventually([&] { return locks.stats().heartbeats >= 1; }));
        REQUIRE(eventually([&] { return link.connections().size() == 1; }));
        const auto open_now = link.connections();
        link.hold(open_now.front(), support::tcp_relay::direction::answers);
        const auto beats = locks.stats().heartbeats;
        CHECK(eventually([&] { return locks.stats().heartbeats >= beats + 5; }));
        CHECK(held.held());
        CHECK(locks.stats().lost == 0);
        link.cut(open_now.front());
    }
}

namespace {

/// Waits until a connection to PostgreSQL listens for the session that holds "job" or waits for it,
/// and has sent no statement since.
/// @param table where the session's row for "job" is
void await_listener_of(support::lock_database& database, const std::string& table) {
    const auto session = database.number("select session from " + table + " where name = 'job'");
    const auto channel =
        wakeup::notification_channel(support::address_of(database, session_id{session}));
    REQUIRE(eventually([&] {
        return database.number("select count(*) from pg_stat_activity where query like 'listen %" +
                               channel + "%'") == 1;
    }));
}

void await_listener(support::lock_database& database) {
    await_listener_of(database, "rowlock_lock");
}

/// A queued client with a single connection, behind a relay. Only a notification of PostgreSQL
/// wakes it within a minute.
class distant_waiter {
public:
    explicit distant_waiter(support::lock_database& database)
        : address_{contract::address_of(support::server::postgresql)},
          link{address_.port},
          locks{database.at(through_link()), database.options({.ttl = 60s,
                                                               .heartbeat = 500ms,
                                                               .poll_interval = 60s,
                                                               .wake_ups = wakeup_mode::database,
                                                               .statement_timeout = 30s,
                                                               .single_connection = true})},
          arrival_{std::async(std::launch::async, [this] {
              const auto got = acquire_soon(locks, "job");
              return steady::now();
          })} {
        REQUIRE(places(database, 1));
        // Its waiter loop listens before it polls.
        REQUIRE(eventually([&] { return locks.stats().polls >= 1; }));
    }
    ~distant_waiter() { link.cut(); }
    distant_waiter(const distant_waiter&) = delete;
    distant_waiter& operator=(const distant_waiter&) = delete;

    /// The one connection of the client.
    int connection() const {
        REQUIRE(eventually([&] { return link.connections().size() == 1; }));
        return link.connections().front();
    }
    /// The time of its grant.
    steady::time_point arrival() { return arrival_.get(); }
    void beats(std::uint64_t more) const {
        const auto before = locks.stats().heartbeats;
        REQUIRE(eventually([&] { return locks.stats().heartbeats >= before + more; }));
    }

private:
    std::string through_link() {
        address_.host = "127.0.0.1";
        address_.port = link.port();
        return address_.url();
    }

    contract::server_address address_;

public:
    support::tcp_relay link;
    client locks;

private:
    std::future<steady::time_point> arrival_;
};

}  // namespace

TEST_CASE("a waiter listens on the connection that replaces one that stalls") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        client holder{database.source(), database.options({.wake_ups = wakeup_mode::database})};
        auto held = holder.acquire("job");
        distant_waiter waiter{database};
        waiter.link.hold(waiter.connection(), support::tcp_relay::direction::answers);
        waiter.beats(2);
        const auto from = steady::now();
        held.release();
        CHECK(waiter.arrival() - from < at_once);
        // It has released its lease on a connection that does not stall.
        CHECK(steady::now() - from < 15s);
    }
}

TEST_CASE("a waiter listens again after another call found the single connection broken") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        client holder{database.source(), database.options({.wake_ups = wakeup_mode::database})};
        auto held = holder.acquire("job");
        distant_waiter waiter{database};
        const auto connection = waiter.connection();
        // Another call uses the connection while it breaks.
        waiter.link.hold_answer(1);
        auto asking = std::async(std::launch::async, [&] {
            return support::kind_of([&] { static_cast<void>(waiter.locks.inspect("job")); });
        });
        REQUIRE(waiter.link.holds_answer());
        waiter.link.hold_answer(0);
        waiter.link.cut(connection);
        static_cast<void>(asking.get());
        waiter.beats(2);
        const auto from = steady::now();
        held.release();
        CHECK(waiter.arrival() - from < at_once);
    }
}

TEST_CASE("a waiter is notified of its grant while its client pauses after a failure") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        for (const bool single : {true, false}) {
            CAPTURE(single);
            client holder{database.source(), database.options({.wake_ups = wakeup_mode::database})};
            std::atomic<int> failed{0};
            support::interception network;
            client waiter{network.wrap(database.source()),
                          database.options({.ttl = 60s,
                                            .poll_interval = 60s,
                                            .wake_ups = wakeup_mode::database,
                                            .single_connection = single,
                                            .retry = {.backoff = 30s, .max_backoff = 30s}})};
            auto held = holder.acquire("job");
            network.before([&](std::string_view what) {
                if (what != "entries" && what != "entries_by_id") return;
                ++failed;
                throw error{errc::conflict, "for this test"};
            });
            auto waiting = std::async(std::launch::async, [&] {
                const auto got = acquire_soon(waiter, "job");
                return steady::now();
            });
            REQUIRE(places(database, 1));
            REQUIRE(eventually([&] { return failed > 0; }));
            await_listener_of(database, "rowlock_ticket");
            const auto from = steady::now();
            held.release();
            CHECK(waiting.get() - from < at_once);
        }
    }
}

TEST_CASE("a holder that has waited is notified of a request after its single connection was cut") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        client other{database.source(), database.options({.wake_ups = wakeup_mode::database})};
        std::optional<lease> theirs{other.acquire("job")};
        auto address = contract::address_of(support::server::postgresql);
        support::tcp_relay link{address.port};
        address.host = "127.0.0.1";
        address.port = link.port();
        client locks{database.at(address.url()),
                     database.options({.ttl = 60s,
                                       .poll_interval = 60s,
                                       .wake_ups = wakeup_mode::database,
                                       .single_connection = true})};
        auto waiting = std::async(std::launch::async, [&] { return acquire_soon(locks, "job"); });
        REQUIRE(places(database, 1));
        REQUIRE(eventually([&] { return locks.stats().polls >= 1; }));
        theirs.reset();
        std::vector<lease> held;
        held.push_back(waiting.get());
        for (int i = 0; i < 5; ++i) held.push_back(locks.acquire("job " + std::to_string(i)));
        // The first reconnect is refused.
        link.refuse(true);
        link.cut();
        REQUIRE(eventually([&] { return link.counted().refused > 0; }));
        const auto beats = locks.stats().heartbeats;
        link.refuse(false);
        // One heartbeat follows the break, the next comes a third of the ttl later.
        REQUIRE(eventually([&] { return locks.stats().heartbeats > beats; }));
        // The client may listen only a moment later.
        CHECK(std::ranges::any_of(held, [&](const lease& each) {
            REQUIRE(other.request_release(each.name(), each.token()));
            return eventually([&] { return each.lost().stop_requested(); }, 1s);
        }));
    }
}

TEST_CASE("calls on a single connection cause no heartbeats where the heartbeat listens") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        support::interception network;
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 60s,
                                       .wake_ups = wakeup_mode::database,
                                       .single_connection = true,
                                       .retry = {.attempts = 1}})};
        const auto held = locks.acquire("job");
        await_listener(database);
        // The client looks for the lost grant with each heartbeat until no late statement can make
        // it.
        network.before([caller = std::this_thread::get_id()](std::string_view) {
            if (std::this_thread::get_id() == caller) support::interception::lose_reply();
        });
        CHECK(support::kind_of([&] { static_cast<void>(locks.try_acquire("other")); }) ==
              errc::outcome_unknown);
        network.before({});
        CHECK(locks.stats().unresolved == 1);
        const auto beats = locks.stats().heartbeats;
        const auto until = steady::now() + 1s;
        while (steady::now() < until) {
            CHECK(locks.inspect("job"));  // another use of the connection
            std::this_thread::sleep_for(1ms);
        }
        CHECK(locks.stats().heartbeats < beats + 20);
    }
}

TEST_CASE("many threads share a single connection, and each has its lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto count = std::make_shared<counted>();
        client locks{
            counting(database.source(), count),
            database.options({.ttl = 5min, .poll_interval = 100ms, .single_connection = true})};
        std::vector<std::future<void>> all;
        std::atomic<int> inside{0};
        std::atomic<int> overlaps{0};
        for (int i = 0; i < 6; ++i) {
            all.push_back(std::async(std::launch::async, [&] {
                for (int round = 0; round < 10; ++round) {
                    const auto mine = acquire_soon(locks, "job");
                    if (inside++ != 0) ++overlaps;
                    inside--;
                }
            }));
        }
        for (auto& each : all) each.get();
        CHECK(overlaps == 0);
        CHECK(count->most == 1);
    }
}
