// Clients far away from their database. What the client decides is shown with statements that take
// as long, and what a driver sends through a relay that delays every packet.

#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include "support/server_address.hpp"
#include "support/tcp_relay.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using std::chrono::milliseconds;
using support::eventually;
using support::interception;
using support::tcp_relay;
using steady = std::chrono::steady_clock;

namespace {

constexpr milliseconds round_trip = 600ms;
constexpr milliseconds ttl = 10 * round_trip;
constexpr milliseconds less_far = 100ms;
constexpr milliseconds near = 50ms;

contract::server_address server_of(const support::lock_database& database) {
    return contract::address_of(database.speaks() == sql::dialect::postgresql
                                    ? support::server::postgresql
                                    : support::server::mariadb);
}

/// A slow link to the database's server.
class far_away {
public:
    explicit far_away(const support::lock_database& database, milliseconds time = less_far)
        : relay_{server_of(database).port}, tables_{database.source().tables()} {
        auto address = server_of(database);
        address.host = "127.0.0.1";
        address.port = relay_.port();
        url_ = address.url();
        relay_.become({.round_trip = time, .loss = 0, .resend = time + 200ms, .seed = 1});
    }

    [[nodiscard]] sql::connection_source source() const { return open(url_).with_tables(tables_); }

private:
    tcp_relay relay_;
    sql::table_names tables_;
    std::string url_;
};

/// The result of one client.
struct fate {
    std::uint64_t lost = 0;
    std::uint64_t sessions = 0;
    std::uint64_t heartbeats = 0;
    bool held = false;
};

/// Holds back the first `what` of another thread until the test lets it go.
interception::hook not_from_here(std::string_view wanted,
                                 const std::shared_ptr<std::atomic<int>>& stuck,
                                 const std::shared_future<void>& go) {
    return [wanted, stuck, go, self = std::this_thread::get_id()](std::string_view what) {
        if (what != wanted || std::this_thread::get_id() == self) return;
        if (stuck->fetch_add(1) == 0) go.wait();
    };
}

/// Makes each packet take half of a round trip, and one that is lost the time until it is resent.
class slow_network {
public:
    slow_network(double loss, unsigned seed) : lost_{loss}, random_{seed} {
        network_.before([this](std::string_view what) {
            pass(what == "connect" ? round_trips_of_a_login : 1);
        });
        network_.after([this](std::string_view) { pass(1); });
    }
    [[nodiscard]] sql::connection_source to(const sql::connection_source& source) {
        return network_.wrap(source);
    }

private:
    /// Greeting, user, challenge, proof.
    static constexpr int round_trips_of_a_login = 4;

    void pass(int times) {
        milliseconds time{0};
        {
            const std::lock_guard lock{mutex_};
            for (int i = 0; i < 2 * times - 1; ++i) {
                time += round_trip / 2;
                if (lost_(random_)) time += round_trip + 200ms;
            }
        }
        std::this_thread::sleep_for(time);
    }

    std::mutex mutex_;
    std::bernoulli_distribution lost_;
    std::mt19937 random_;
    interception network_;
};

fate hold_for(support::lock_database& database, milliseconds time, milliseconds its_ttl,
              double loss, unsigned seed) {
    slow_network link{loss, seed};
    client locks{link.to(database.source()),
                 database.options({.ttl = its_ttl, .statement_timeout = 20s})};
    const auto job = locks.acquire("job-" + std::to_string(seed));
    std::this_thread::sleep_for(time);
    const auto seen = locks.stats();
    return {seen.lost, seen.sessions, seen.heartbeats, job.held()};
}

/// The time from the call of release() in one far client to the return of acquire() in another that
/// the database notifies: the shortest of some, after one that prepares statements.
steady::duration hand_over(support::lock_database& database) {
    far_away here{database};
    far_away there{database};
    const auto options = [&] {
        return database.options(
            {.ttl = 30s, .wake_ups = wakeup_mode::database, .statement_timeout = 20s});
    };
    client holder{here.source(), options()};
    client waiter{there.source(), options()};
    auto best = steady::duration::max();
    for (int i = 0; i < 3; ++i) {
        auto job = holder.acquire("job");
        auto waiting = std::async(std::launch::async, [&] {
            const auto got = support::acquire_soon(waiter, "job");
            return steady::now();
        });
        if (!support::places(database, 1)) return best;
        std::this_thread::sleep_for(3 * less_far);  // its sleep or its LISTEN has begun
        const auto called = steady::now();
        job.release();
        const auto took = waiting.get() - called;
        if (i > 0) best = std::min(best, took);
    }
    return best;
}

}  // namespace

// shows: promise-5
ROWLOCK_SIMULATED_CASE("a ttl of ten round trips holds its leases, with and without lost packets",
                       database) {
    std::vector<std::future<fate>> all;
    unsigned seed = 0;
    for (const milliseconds its_ttl : {ttl, 2 * ttl}) {
        for (const double loss : {0.0, 0.05, 0.05}) {
            ++seed;
            all.push_back(std::async(std::launch::async, [&database, its_ttl, loss, seed] {
                // A machine that stalls may cost one of several a lease, but hardly each.
                auto became = hold_for(database, 14s, its_ttl, loss, seed);
                for (int again = 0; again < 2 && became.lost > 0; ++again) {
                    became = hold_for(database, 14s, its_ttl, loss, seed);
                }
                return became;
            }));
        }
    }
    for (auto& each : all) {
        const auto became = each.get();
        CHECK(became.lost == 0);
        CHECK(became.sessions == 1);
        CHECK(became.heartbeats >= 3);
        CHECK(became.held);
    }
}

// shows: promise-5
ROWLOCK_SIMULATED_CASE("control: a ttl of three round trips holds no lease", database) {
    CHECK(hold_for(database, 14s, 3 * round_trip, 0, 1).lost > 0);
}

// shows: promise-5
TEST_CASE("a heartbeat takes one round trip") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const far_away link{database, near};
        client locks{link.source(),
                     database.options(
                         {.ttl = 60s, .heartbeat = 10ms, .margin = 1s, .statement_timeout = 20s})};
        const auto job = locks.acquire("job");
        // Its own connection is there, and has prepared the statement.
        REQUIRE(eventually([&] { return locks.stats().heartbeats >= 5; }));
        const auto time_of_four = [&] {
            const auto first = locks.stats().heartbeats;
            const auto start = steady::now();
            CHECK(eventually([&] { return locks.stats().heartbeats >= first + 5; }));
            return steady::now() - start;  // of four at least, and a part of one
        };
        constexpr auto two_each = 4 * 2 * near;
        CHECK(support::at_best(two_each, time_of_four) < two_each);
    }
}

TEST_CASE("a lease is kept although its heartbeat's own connection cannot be opened") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 20s, .heartbeat = 300ms})};
        std::promise<void> again;
        const auto opened = again.get_future().share();
        const auto stuck = std::make_shared<std::atomic<int>>(0);
        network.before(not_from_here("connect", stuck, opened));
        const auto job = locks.acquire("job");
        REQUIRE(eventually([&] { return stuck->load() > 0; }));
        const auto before = locks.stats().heartbeats;
        CHECK(eventually([&] { return locks.stats().heartbeats >= before + 4; }, 20s));
        CHECK(job.held());
        CHECK(locks.stats().lost == 0);
        network.before({});
        again.set_value();
    }
}

TEST_CASE("a heartbeat without an answer is sent on another connection in time") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 20s, .heartbeat = 300ms})};
        const auto job = locks.acquire("job");
        REQUIRE(eventually([&] { return locks.stats().heartbeats >= 1; }));
        std::promise<void> again;
        const auto answered = again.get_future().share();
        const auto stuck = std::make_shared<std::atomic<int>>(0);
        network.before(not_from_here("heartbeat", stuck, answered));
        REQUIRE(eventually([&] { return stuck->load() > 0; }));
        const auto before = locks.stats().heartbeats;
        CHECK(eventually([&] { return locks.stats().heartbeats >= before + 4; }, 20s));
        CHECK(job.held());
        CHECK(locks.stats().lost == 0);
        network.before({});
        again.set_value();
    }
}

// shows: promise-5
TEST_CASE("control: a heartbeat that is sent on no other connection loses the lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()), database.options({.ttl = 900ms})};
        const auto job = locks.acquire("job");
        std::promise<void> again;
        const auto answered = again.get_future().share();
        network.before([answered](std::string_view what) {
            if (what == "heartbeat") answered.wait();
        });
        CHECK(eventually([&] { return !job.held(); }, 5s));
        network.before({});
        again.set_value();
    }
}

TEST_CASE("a forced release is known while the heartbeat's own connection is being opened") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 20s, .heartbeat = 300ms})};
        std::promise<void> again;
        const auto opened = again.get_future().share();
        const auto stuck = std::make_shared<std::atomic<int>>(0);
        network.before(not_from_here("connect", stuck, opened));
        const auto job = locks.acquire("job");
        const auto kept = locks.acquire("kept");
        REQUIRE(eventually([&] { return stuck->load() > 0; }));
        client other{database.source(), database.options()};
        CHECK(other.force_release("job"));
        const auto before = locks.stats().heartbeats;
        CHECK(eventually([&] { return locks.stats().heartbeats >= before + 3; }, 20s));
        CHECK(kept.held());
        network.before({});
        again.set_value();
        CHECK(eventually([&] { return !job.held(); }));
        CHECK(kept.held());
        CHECK(locks.stats().sessions == 1);
    }
}

TEST_CASE("the client warns of a ttl that is too short for the link, and names a sufficient one") {
    ROWLOCK_FOR_A_CLIENT(database) {
        const auto check_warning = [&](bool is_short) {
            CAPTURE(is_short);
            interception network;
            std::mutex mutex;
            std::vector<std::string> warnings;
            client locks{network.wrap(database.source()),
                         database.options({.ttl = is_short ? 3s : 30s,
                                           .heartbeat = is_short ? 1s : 0s,
                                           .margin = is_short ? 1s : 0s,
                                           .on_event = [&](const event& what) {
                                               if (what.kind != event_kind::ttl_short) return;
                                               const std::lock_guard lock{mutex};
                                               warnings.push_back(what.message);
                                           }})};
            network.before([](std::string_view what) {
                if (what == "connect") std::this_thread::sleep_for(1050ms);
            });
            const auto job = locks.acquire(is_short ? "job" : "another job");
            REQUIRE(eventually([&] { return locks.stats().connections >= 2; }));
            const auto seen = [&] {
                const std::lock_guard lock{mutex};
                return warnings.size();
            };
            // A machine that stalls may let the short session end before its first heartbeat.
            REQUIRE(eventually(
                [&] { return !is_short || locks.stats().heartbeats >= 1 || seen() == 1; }));
            network.before({});
            if (is_short) {
                CHECK(eventually([&] { return seen() == 1; }));
                CHECK(warnings.front().find("raise the ttl to ") != std::string::npos);
            } else {
                CHECK(seen() == 0);
            }
        };
        auto aside = std::async(std::launch::async, check_warning, false);
        check_warning(true);
        aside.get();
    }
}

TEST_CASE("a hand-over between far clients takes three round trips and a poll at most") {
    ROWLOCK_FOR_A_CLIENT(database) {
        constexpr auto poll = 1s;
        constexpr auto bound = 3 * less_far + poll;
        const auto took = support::at_best(bound, [&] { return hand_over(database); });
        CAPTURE(std::chrono::duration<double>(took) / less_far);
        CHECK(took < bound);
    }
}
