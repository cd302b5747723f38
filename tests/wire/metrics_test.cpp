// The metrics of a client, by their text. tests/unit/metrics_test.cpp has what they are made of.

#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/testing.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;

namespace {

/// The value of a sample; nullopt if there is none.
std::optional<double> value_of(const client& locks, const std::string& sample) {
    const auto text = "\n" + metrics::prometheus(locks);
    const auto at = text.find("\n" + sample + " ");
    if (at == std::string::npos) return std::nullopt;
    return std::stod(text.substr(at + sample.size() + 2));
}

double acquires(const client& locks, const std::string& mode, const std::string& outcome,
                const std::string& class_label = "") {
    return value_of(locks, "rowlock_client_acquire_seconds_count{mode=\"" + mode + "\",outcome=\"" +
                               outcome + "\"" + class_label + "}")
        .value_or(0);
}

double losses(const client& locks, loss_reason why) {
    const std::string reason{to_string(why)};
    return value_of(locks, "rowlock_client_lost_total{reason=\"" + reason + "\"}").value_or(-1);
}

double holds(const client& locks) {
    return value_of(locks, "rowlock_client_hold_seconds_count").value_or(0);
}

}  // namespace

TEST_CASE("each acquire is measured by mode and outcome, each hold once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        client another{database.source(), database.options()};
        {
            const auto lease = locks.acquire("job");
            CHECK_FALSE(another.try_acquire("job"));
            CHECK_FALSE(another.try_acquire_for("job", 20ms));
            std::stop_source stop;
            std::jthread stopper{[&] {
                eventually([&] { return another.stats().waiting == 1; });
                stop.request_stop();
            }};
            CHECK_FALSE(another.acquire("job", stop.get_token()));
        }
        CHECK(acquires(locks, "exclusive", "granted") == 1);
        CHECK(acquires(another, "exclusive", "granted") == 0);
        CHECK(acquires(another, "exclusive", "busy") == 2);
        CHECK(acquires(another, "exclusive", "stopped") == 1);

        semaphore limit{locks, "limit"};
        limit.create(2);
        static_cast<void>(limit.acquire());
        shared_mutex catalogue{locks, "catalogue"};
        { const std::shared_lock reading{catalogue}; }
        {
            auto hold = catalogue.acquire(lock_mode::upgradeable);
            hold.upgrade();
        }
        static_cast<void>(catalogue.acquire(lock_mode::exclusive));
        static_cast<void>(locks.acquire_all({"a", "b"}));
        for (const char* mode : {"permits", "shared", "upgradeable", "upgrade", "several"}) {
            CAPTURE(std::string{mode});
            CHECK(acquires(locks, mode, "granted") == 1);
        }
        CHECK(acquires(locks, "exclusive", "granted") == 2);
        REQUIRE(eventually([&] { return locks.stats().held == 0; }));
        const auto stats = locks.stats();
        CHECK(value_of(locks, "rowlock_client_grants_total") ==
              static_cast<double>(stats.acquired));
        CHECK(holds(locks) == static_cast<double>(stats.acquired));
        CHECK(holds(another) == 0);
    }
}

ROWLOCK_SIMULATED_CASE("losses are counted by reason, and their sum is stats().lost", database) {
    client locks{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
    client operators{database.source(), database.options()};
    auto one = locks.acquire("one");
    const auto two = locks.acquire("two");
    CHECK(losses(locks, loss_reason::forced_release) == 0);  // before the first, too
    REQUIRE(operators.force_release("one"));
    REQUIRE(operators.request_release("two", two.token()));
    REQUIRE(eventually([&] { return !one.held() && !two.held(); }));
    REQUIRE(eventually([&] { return locks.stats().lost == 2; }));
    CHECK(losses(locks, loss_reason::forced_release) == 1);
    CHECK(losses(locks, loss_reason::release_requested) == 1);
    CHECK(losses(locks, loss_reason::session_ended) == 0);
    CHECK(holds(locks) == 2);
    CHECK(kind_of([&] { one.release(); }) == errc::lock_lost);
    CHECK(holds(locks) == 2);  // not once more
}

TEST_CASE("a hold lasts from the grant to its release or loss, by the client's clock") {
    testing::database database;
    client locks{database.source(), database.options({.ttl = 24h})};
    {
        const auto lease = locks.acquire("job");
        database.clock().advance(90s);
        CHECK(holds(locks) == 0);
    }
    CHECK(value_of(locks, "rowlock_client_hold_seconds_sum") == 90);
    CHECK(value_of(locks, "rowlock_client_hold_seconds_bucket{le=\"60\"}") == 0);
    CHECK(value_of(locks, "rowlock_client_hold_seconds_bucket{le=\"300\"}") == 1);
}

TEST_CASE("the age of the heartbeat and the rest of the trust window are those of the session") {
    testing::database database;
    client locks{database.source(),
                 database.options({.ttl = 60s, .heartbeat = 30s, .margin = 10s})};
    CHECK_FALSE(value_of(locks, "rowlock_client_heartbeat_age_seconds"));
    CHECK_FALSE(value_of(locks, "rowlock_client_trust_remaining_seconds"));
    const auto lease = locks.acquire("job");
    CHECK(value_of(locks, "rowlock_client_heartbeat_age_seconds") == 0);
    CHECK(value_of(locks, "rowlock_client_trust_remaining_seconds") == 50);
    database.clock().advance(20s);
    CHECK(value_of(locks, "rowlock_client_heartbeat_age_seconds") == 20);
    CHECK(value_of(locks, "rowlock_client_trust_remaining_seconds") == 30);
}

TEST_CASE("no name of a lock is in the text, only the class that the caller gave it") {
    testing::database database;
    const auto options = database.options({.metric_class = [](std::string_view name) {
        return name.starts_with("report/") ? std::string{"re\"port\n"} : std::string{};
    }});
    client locks{database.source(), options};
    static_cast<void>(locks.acquire("report/secret-a"));
    static_cast<void>(locks.acquire("report/secret-b"));
    static_cast<void>(locks.acquire("secret-c"));
    static_cast<void>(locks.acquire_all({"report/secret-d", "secret-e"}));
    const std::string report = ",class=\"re\\\"port\\n\"";
    CHECK(acquires(locks, "exclusive", "granted", report) == 2);
    CHECK(acquires(locks, "exclusive", "granted", ",class=\"other\"") == 1);
    CHECK(acquires(locks, "several", "granted", report) == 1);  // that of the first name
    CHECK(value_of(locks, "rowlock_client_hold_seconds_count{class=\"re\\\"port\\n\"}") == 3);
    CHECK(value_of(locks, "rowlock_client_hold_seconds_count{class=\"other\"}") == 2);
    CHECK(metrics::prometheus(locks).find("secret") == std::string::npos);
}

TEST_CASE("an acquire without a database is measured as failed") {
    const auto connect = [](sql::deadline) -> std::unique_ptr<sql::connection> {
        throw error{errc::access_denied, "no database"};
    };
    client locks{sql::connection_source{sql::dialect::sqlite, connect, "nowhere"}};
    CHECK(kind_of([&] { static_cast<void>(locks.acquire("job")); }) == errc::access_denied);
    CHECK(acquires(locks, "exclusive", "failed") == 1);
}
