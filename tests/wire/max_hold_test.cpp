// Policies: how long a grant of a name may be held, and which grants the reaper asks for.
// shows: promise-19, fault-max-hold

#include "lock/protocol/policy/policy_protocol.hpp"
#include "support/blocked.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;
using enum lock_mode;

namespace {

/// Moves the time at which the grants of these names were acquired back.
void age(support::lock_database& database, const std::string& names, std::chrono::seconds by,
         const std::string& table = "lock") {
    const std::string seconds = std::to_string(by.count());
    database.run("update rowlock_" + table + " set acquired_at = acquired_at - " +
                 (database.speaks() == sql::dialect::postgresql
                      ? "interval '" + seconds + " seconds'"
                      : seconds + " * 1000000") +
                 " where name in (" + names + ")");
}

std::int64_t requested_by_a_round(support::lock_database& database) {
    return reap(database.source(), database.reaping(1h, 10min)).releases_requested;
}

/// With statements that have time for what a test does in them.
std::int64_t requested_by_a_round(support::lock_database& database, interception& network) {
    auto options = database.reaping(1h, 10min);
    options.statement_timeout = 30s;
    return reap(network.wrap(database.source()), options).releases_requested;
}

bool is_asked(client& locks, const lock_name& name) {
    const auto seen = locks.inspect(name);
    return seen && seen->holder && seen->holder->asked.has_value();
}

/// Of a holder that learns of a change soon, and that no pause ends.
client_options patient() {
    return {.ttl = 20s, .heartbeat = 100ms};
}

/// Whether this is the first statement that a request sends once it has looked at the grant.
bool begins_request(support::lock_database& database, std::string_view what, const char* lock) {
    return database.speaks() == sql::dialect::sqlite ? what.starts_with("begin") : what == lock;
}

}  // namespace

TEST_CASE("a lease that is held longer than its policy allows is asked for by the next round") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        support::event_log events;
        auto options = patient();
        options.on_event = events.callback();
        client holder{database.source(), database.options(options)};
        client other{database.source(), database.options()};
        other.set_max_hold("job", 1h);
        other.set_max_hold("brief", 1h);
        auto lease = holder.acquire("job");
        const auto brief = holder.acquire("brief");
        const auto unlimited = holder.acquire("unlimited");
        age(database, "'job', 'unlimited'", 2h);
        age(database, "'brief'", 50min);

        CHECK(requested_by_a_round(database) == 1);
        CHECK(eventually([&] { return lease.lost().stop_requested(); }));
        CHECK(eventually([&] { return events.has(event_kind::lease_lost); }));
        const auto seen = other.inspect("job");
        REQUIRE(seen);
        REQUIRE(seen->holder);
        REQUIRE(seen->holder->asked);
        CHECK(seen->holder->asked->asked_by.empty());
        CHECK(seen->holder->asked->reason == "held longer than max_hold");
        CHECK(seen->holder->remaining <= 20s);
        // Its holder has not stopped: the margin is kept.
        CHECK_FALSE(other.try_acquire("job"));

        CHECK(requested_by_a_round(database) == 0);
        CHECK(brief.held());
        CHECK(unlimited.held());
        CHECK_FALSE(is_asked(other, "brief"));
        CHECK_FALSE(is_asked(other, "unlimited"));
        CHECK(kind_of([&] { lease.release(); }) == errc::lock_lost);
        std::optional<rowlock::lease> next;
        CHECK(eventually([&] { return (next = other.try_acquire("job")).has_value(); }));
        CHECK(requested_by_a_round(database) == 0);
        CHECK(next->held());
    }
}

TEST_CASE("the reaper of a client enforces max_hold, of its own leases as well") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        support::event_log events;
        auto options = patient();
        options.on_event = events.callback();
        options.reaper = reaper_options{.interval = 50ms};
        client holder{database.source(), database.options(options)};
        holder.set_max_hold("job", 1h);
        const auto lease = holder.acquire("job");
        const auto unlimited = holder.acquire("unlimited");
        age(database, "'job', 'unlimited'", 2h);
        CHECK(eventually([&] { return lease.lost().stop_requested(); }));
        CHECK(unlimited.held());
    }
}

TEST_CASE("an adoption does not start the time of max_hold anew; a reclaim and a new grant do") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        auto as_me = patient();
        as_me.owner = "me";
        auto before = std::make_unique<client>(database.source(), database.options(as_me));
        client taker{database.source(), database.options(patient())};
        taker.set_max_hold("given", 1h);
        taker.set_max_hold("reclaimed", 1h);
        taker.set_max_hold("again", 1h);
        auto given = before->acquire("given");
        const auto reclaimed = before->acquire("reclaimed");
        auto again = before->acquire("again");
        const std::string all = "'given', 'reclaimed', 'again'";
        age(database, all, 50min);
        const auto taken = taker.adopt(given.offer());
        REQUIRE(taken);
        again.release();
        again = before->acquire("again");
        again.release();
        const auto last = taker.acquire("again");
        client after{database.source(), database.options(as_me)};
        const auto mine = after.reclaim().leases;
        REQUIRE(mine.size() == 1);
        age(database, all, 20min);

        CHECK(requested_by_a_round(database) == 1);
        CHECK(eventually([&] { return !taken->held(); }));
        CHECK(mine[0].held());
        CHECK(last.held());
        age(database, all, 50min);
        CHECK(requested_by_a_round(database) == 2);
        CHECK(eventually([&] { return !mine[0].held() && !last.held(); }));
    }
}

TEST_CASE("a renewal does not start the time of max_hold anew, and none follows the request") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const support::protocol_connection on{database};
        client other{database.source(), database.options()};
        other.set_max_hold("job", 1h);
        on.open(session_id{10});
        REQUIRE(on.acquire("job", session_id{10}, grant_id{1}, {.deadline_us = 60'000'000}).what ==
                protocol::attempt::outcome::granted);
        const auto renew = [&] {
            return on.leases().renew(on.db(), "job", session_id{10}, grant_id{1}, 10min, 1min,
                                     soon());
        };
        age(database, "'job'", 50min);
        REQUIRE(renew());
        CHECK(requested_by_a_round(database) == 0);
        age(database, "'job'", 20min);
        REQUIRE(renew());

        // A renewal between the look and the request: the next round asks.
        interception network;
        bool renewed = false;
        network.after([&](std::string_view what) {
            if (what == "overdue_leases" && !renewed) renewed = renew().has_value();
        });
        CHECK(requested_by_a_round(database, network) == 0);
        CHECK(renewed);
        network.after({});
        CHECK(requested_by_a_round(database, network) == 1);
        CHECK_FALSE(renew());
        // Nothing renews it: it keeps the deadline that it has.
        CHECK(other.inspect("job")->holder->remaining <= 10min);
    }
}

TEST_CASE("permits and modes are asked for after max_hold, by the time of their own acquisition") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options(patient())};
        semaphore api{holder, "api"};
        api.set_capacity(5);
        shared_mutex page{holder, "page"};
        shared_mutex index{holder, "index"};
        semaphore unlimited{holder, "unlimited"};
        unlimited.set_capacity(1);
        for (const char* name : {"api", "page", "index"}) other.set_max_hold(name, 1h);
        auto old = api.acquire(2, {.max_duration = 3h});
        const auto old_reader = page.acquire(shared);
        auto upgraded = index.acquire(upgradeable);
        const auto free_of_limits = unlimited.acquire();
        age(database, "'api', 'page', 'index', 'unlimited'", 50min, "hold");
        old.extend(4h);
        upgraded.upgrade();
        age(database, "'api', 'page', 'index', 'unlimited'", 20min, "hold");
        const auto young = api.acquire();
        const auto young_reader = page.acquire(shared);

        CHECK(requested_by_a_round(database) == 3);
        CHECK(eventually([&] { return !old.held() && !old_reader.held() && !upgraded.held(); }));
        CHECK(requested_by_a_round(database) == 0);
        CHECK(young.held());
        CHECK(young_reader.held());
        CHECK(free_of_limits.held());
        CHECK(kind_of([&] { old.extend(5h); }) == errc::lock_lost);
        // They come back once their holder has stopped.
        CHECK_FALSE((semaphore{other, "api"}.try_acquire(3)));
        old = {};
        CHECK(eventually([&] { return semaphore{other, "api"}.try_acquire(4).has_value(); }));
    }
}

TEST_CASE(
    "a policy is for a lock, whatever holds it: a mutex, then readers, each asked for alone") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options()};
        other.set_max_hold("both", 1h);
        {
            const auto lease = holder.acquire("both");
            age(database, "'both'", 2h);
            CHECK(requested_by_a_round(database) == 1);
            CHECK(eventually([&] { return !lease.held(); }));
        }
        shared_mutex both{holder, "both"};
        const auto old = both.try_acquire_for(shared, support::patience);
        REQUIRE(old);
        CHECK(requested_by_a_round(database) == 0);
        age(database, "'both'", 2h, "hold");
        const auto young = both.acquire(shared);
        CHECK(requested_by_a_round(database) == 1);
        CHECK(eventually([&] { return !old->held(); }));
        CHECK(young.held());
    }
}

TEST_CASE("a grant that follows between a round's look and its request is not asked for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options(patient())};
        other.set_max_hold("job", 1h);
        other.set_max_hold("api", 1h);
        semaphore theirs{holder, "api"};
        semaphore ours{other, "api"};
        theirs.set_capacity(1);
        auto lease = holder.acquire("job");
        auto permit = theirs.acquire();
        age(database, "'job'", 2h);
        age(database, "'api'", 2h, "hold");

        interception network;
        std::optional<rowlock::lease> next;
        std::optional<permits> next_permit;
        const auto pass_lease_on = [&] {
            if (next) return;
            lease.release();
            REQUIRE(eventually([&] { return (next = other.try_acquire("job")).has_value(); }));
        };
        const auto pass_permit_on = [&] {
            if (next_permit) return;
            permit.release();
            REQUIRE(eventually([&] { return (next_permit = ours.try_acquire()).has_value(); }));
        };
        int requests = 0;
        const bool sqlite = database.speaks() == sql::dialect::sqlite;
        SUBCASE("after the look for overdue holds") {
            network.after([&](std::string_view what) {
                if (what == "overdue_leases") pass_lease_on();
                if (what == "overdue_permits") pass_permit_on();
            });
        }
        SUBCASE("after the request has read the grant, before it locks it") {
            network.before([&](std::string_view what) {
                // On SQLite the first request is the lease's, the second that of the permits.
                const bool begins = begins_request(database, what, "lock_lease");
                const bool begins_permit = begins_request(database, what, "lock_permit");
                if (begins || begins_permit) ++requests;
                if (begins && (!sqlite || requests == 1)) pass_lease_on();
                if (begins_permit && (!sqlite || requests == 2)) pass_permit_on();
            });
        }
        CHECK(requested_by_a_round(database, network) == 0);
        REQUIRE(next);
        REQUIRE(next_permit);
        CHECK_FALSE(is_asked(other, "job"));
        CHECK(database.number("select requested from rowlock_hold") == 0);
        CHECK(next->held());
        CHECK(next_permit->held());
        // The control: these are the grants that a request would end.
        CHECK(other.request_release("job", next->token()));
        CHECK(ours.request_release(next_permit->token()));
        CHECK(eventually([&] { return !next->held() && !next_permit->held(); }));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a policy that is removed or extended while a round runs is no ground for its requests",
    database) {
    client holder{database.source(), database.options(patient())};
    client other{database.source(), database.options()};
    for (const char* name : {"a", "b", "c", "d"}) other.set_max_hold(name, 1h);
    const auto first = holder.acquire("a");
    const auto removed = holder.acquire("b");
    const auto extended = holder.acquire("c");
    const auto still = holder.acquire("d");
    age(database, "'a', 'b', 'c', 'd'", 2h);
    interception network;
    bool changed = false;
    network.before([&](std::string_view what) {
        if (changed || !begins_request(database, what, "lock_lease")) return;
        changed = true;
        other.set_max_hold("b", std::nullopt);
        other.set_max_hold("c", 3h);
        std::this_thread::sleep_for(1100ms);  // as if "a" had been locked for so long
    });
    CHECK(requested_by_a_round(database, network) == 2);
    CHECK(changed);
    CHECK(eventually([&] { return !first.held() && !still.held(); }));
    CHECK(removed.held());
    CHECK(extended.held());
    CHECK_FALSE(is_asked(other, "b"));
    CHECK_FALSE(is_asked(other, "c"));
}

TEST_CASE("all that is overdue is asked for, however small the batches") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options()};
        semaphore api{holder, "api"};
        api.set_capacity(3);
        shared_mutex page{holder, "page"};
        shared_mutex index{holder, "index"};
        for (const char* name : {"api", "page", "index", "a", "b", "c"}) {
            other.set_max_hold(name, 1h);
        }
        const auto leases = holder.acquire_all({"a", "b", "c"});
        std::vector<permits> taken;
        std::vector<mode_lease> reading;
        for (int i = 0; i < 3; ++i) {
            taken.push_back(api.acquire());
            reading.push_back(page.acquire(shared));
        }
        age(database, "'a', 'b', 'c'", 2h);
        auto upgraded = index.acquire(upgradeable);
        upgraded.upgrade();
        age(database, "'api', 'page', 'index'", 2h, "hold");
        auto options = database.reaping(1h, 10min);
        SUBCASE("one at a time") {
            options.batch = 1;
        }
        SUBCASE("all in one") {
            options.batch = 500;
        }
        CHECK(reap(database.source(), options).releases_requested == 10);
        CHECK(eventually([&] { return !leases.held() && !upgraded.held(); }));
        CHECK(eventually([&] {
            return std::ranges::none_of(taken, [](const auto& each) { return each.held(); }) &&
                   std::ranges::none_of(reading, [](const auto& each) { return each.held(); });
        }));
        CHECK(reap(database.source(), options).releases_requested == 0);
    }
}

TEST_CASE("the look for overdue holds goes from policies to holds by their keys") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const bool sqlite = database.speaks() == sql::dialect::sqlite;
        const std::string now = postgresql ? "clock_timestamp()" : "1";
        const std::string numbers =
            "with recursive k (i) as (select 1 union all select i + 1 from k where i < 900) ";
        const std::string name = database.speaks() == sql::dialect::mysql
                                     ? "concat('n', a.i, '-', b.i)"
                                     : "'n' || a.i || '-' || b.i";
        const auto fill = [&](const std::string& table, const std::string& values, int each = 10) {
            database.run("insert into rowlock_" + table + " " + numbers + "select " + values +
                         " from k a cross join k b where b.i <= " + std::to_string(each));
        };
        fill("lock (name, token, changed_at, acquired_at, session)",
             name + ", 1, " + now + ", " + now + ", a.i * 1000 + b.i");
        fill("hold (name, grant_id, session, weight, token, acquired_at)",
             name + ", a.i, a.i * 1000 + b.i, 1, 1, " + now);
        fill("session (id, owner, host, pid, program, ttl_us, expires_at, opened_at)",
             "a.i * 1000 + b.i, 'o', 'h', 1, 'p', 1, " + now + ", " + now);
        // So many that a join by a hash of all leases would look cheaper.
        fill("policy (name, max_hold_us)", name + ", 3600000000", 100);
        for (const char* table : {"lock", "hold", "session", "policy"}) {
            database.run((postgresql || sqlite ? "analyze rowlock_" : "analyze table rowlock_") +
                         std::string{table});
        }
        for (const bool leases : {true, false}) {
            std::string text =
                database.statements()(leases ? "overdue_leases" : "overdue_permits").text();
            auto& db = database.admin();
            if (postgresql) {
                db.query("set plan_cache_mode = force_generic_plan", soon());
                db.query("prepare look as " + text, soon());
                text = leases ? "explain execute look('', 'z', 500)"
                              : "explain execute look('', 'z', 0, 500)";
            } else {
                const auto fill_in = [&](const std::string& what, const std::string& by) {
                    for (auto at = text.find(what); at != std::string::npos; at = text.find(what)) {
                        text.replace(at, what.size(), by);
                    }
                };
                fill_in("$1", "''");
                fill_in("$2", "'z'");
                fill_in("$3", leases ? "500" : "0");
                fill_in("$4", "500");
                text = (sqlite ? "explain query plan " : "explain format=traditional ") + text;
            }
            const auto plan = db.query(text, soon());
            if (postgresql) db.query("deallocate look", soon());
            std::string all;
            for (std::size_t row = 0; row < plan.rows(); ++row) {
                std::string line;
                for (std::size_t column = 0; column < plan.columns(); ++column) {
                    line += '|';
                    if (!plan.is_null(row, column)) line.append(plan.text(row, column));
                }
                all += line + "|\n";
            }
            CAPTURE(all);
            const auto has = [&](const std::string& part) {
                return all.find(part) != std::string::npos;
            };
            for (const char* table : {"lock", "hold", "session"}) {
                CHECK_FALSE(has("Seq Scan on " + database.prefix() + table));
            }
            for (const char* alias : {"l", "s", "m"}) {
                CHECK_FALSE(has("SCAN " + std::string{alias}));
                CHECK_FALSE(has("|" + std::string{alias} + "||ALL|"));
                CHECK_FALSE(has("|" + std::string{alias} + "|ALL|"));
                CHECK_FALSE(has("|" + std::string{alias} + "||index|"));
                CHECK_FALSE(has("|" + std::string{alias} + "|index|"));
            }
            CHECK((postgresql || has(sqlite ? "SEARCH " : "ref|")));
        }
    }
}

ROWLOCK_SIMULATED_CASE("a request within a time does not protect a hold from max_hold", database) {
    client holder{database.source(), database.options(patient())};
    client other{database.source(), database.options()};
    semaphore api{holder, "api"};
    api.set_capacity(1);
    other.set_max_hold("job", 1h);
    other.set_max_hold("api", 1h);
    const auto lease = holder.acquire("job");
    const auto permit = api.acquire();
    REQUIRE(other.request_release("job", lease.token(), {.within = 5h, .reason = "a deploy"}));
    REQUIRE(semaphore{other, "api"}.request_release(permit.token(), {.within = 5h}));
    REQUIRE(eventually([&] { return lease.release_requested().stop_requested(); }));
    CHECK(lease.held());
    age(database, "'job'", 2h);
    age(database, "'api'", 2h, "hold");
    CHECK(requested_by_a_round(database) == 2);
    CHECK(eventually([&] { return !lease.held() && !permit.held(); }));
    CHECK(requested_by_a_round(database) == 0);
}

TEST_CASE("what was asked for at once before is not asked for by a round") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options()};
        semaphore api{holder, "api"};
        api.set_capacity(1);
        other.set_max_hold("job", 1h);
        other.set_max_hold("api", 1h);
        const auto lease = holder.acquire("job");
        const auto permit = api.acquire();
        age(database, "'job'", 2h);
        age(database, "'api'", 2h, "hold");
        REQUIRE(other.request_release("job", lease.token()));
        REQUIRE(semaphore{other, "api"}.request_release(permit.token()));
        CHECK(requested_by_a_round(database) == 0);
    }
}

TEST_CASE("a hold that ends by itself is not asked for: expired, past its deadline, or free") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const support::protocol_connection on{database};
        client other{database.source(), database.options()};
        for (const char* name : {"expired", "late", "free", "live"}) other.set_max_hold(name, 1h);
        on.open(session_id{10}, {.ttl = 1ms});
        on.open(session_id{11});
        database.run("update rowlock_session set expires_at = " +
                     std::string{database.speaks() == sql::dialect::postgresql
                                     ? "clock_timestamp() + interval '1 hour'"
                                     : "expires_at + 3600000000"} +
                     " where id = 10");
        REQUIRE(on.try_acquire("expired", session_id{10}, grant_id{1}));
        REQUIRE(on.try_acquire("late", session_id{11}, grant_id{2}, {.deadline_us = 1}));
        REQUIRE(on.try_acquire("free", session_id{11}, grant_id{3}));
        REQUIRE(on.try_acquire("live", session_id{11}, grant_id{4}));
        database.run("update rowlock_session set expires_at = opened_at where id = 10");
        REQUIRE(on.free("free", session_id{11}, grant_id{3}));
        age(database, "'expired', 'late', 'live'", 2h);
        database.run("update rowlock_lock set deadline = acquired_at where name = 'late'");
        const protocol::policy_protocol policies{database.statements()};
        const auto found = policies.overdue_leases(database.admin(), {}, "z", 10, soon());
        REQUIRE(found.size() == 1);
        CHECK(found[0].name == "live");
        CHECK(requested_by_a_round(database) == 1);
    }
}

TEST_CASE("a row that stays locked delays its own request alone, until the next round") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options()};
        for (const char* name : {"a", "b"}) other.set_max_hold(name, 1h);
        const auto locked = holder.acquire("a");
        const auto lease = holder.acquire("b");
        age(database, "'a', 'b'", 2h);
        auto options = database.reaping(1h, 10min);
        options.statement_timeout = 1s;
        const auto fence = database.source().connect(soon());
        fence->query("begin", soon());
        fence->query("select token from " + database.prefix() + "lock where name = 'a' for update",
                     soon());
        std::int64_t requested = 0;
        // A stall fails a round whose limit is so short, perhaps after its requests.
        const auto asks_for = [&](const char* name) {
            return eventually([&] {
                try {
                    requested += reap(database.source(), options).releases_requested;
                } catch (const error& failure) {
                    MESSAGE(std::string{failure.what()});
                }
                return is_asked(other, name);
            });
        };
        CHECK(asks_for("b"));
        CHECK(requested <= 1);
        CHECK(eventually([&] { return !lease.held(); }));
        CHECK(locked.held());
        CHECK_FALSE(is_asked(other, "a"));
        fence->query("rollback", soon());
        CHECK(asks_for("a"));
        CHECK(requested <= 2);
        CHECK(eventually([&] { return !locked.held(); }));
    }
}

TEST_CASE("a reaper that dies between its look and its request leaves the hold to the next round") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options()};
        for (const char* name : {"a", "b"}) other.set_max_hold(name, 1h);
        const auto first = holder.acquire("a");
        const auto second = holder.acquire("b");
        age(database, "'a', 'b'", 2h);
        interception network;
        SUBCASE("before the request") {
            network.after([](std::string_view what) {
                if (what == "overdue_leases") throw error{errc::database_error, "by the test"};
            });
            CHECK(kind_of([&] { requested_by_a_round(database, network); }) ==
                  errc::database_error);
            CHECK_FALSE(is_asked(other, "a"));
            CHECK(requested_by_a_round(database) == 2);
        }
        SUBCASE("in the request's transaction") {
            network.after([](std::string_view what) {
                if (what == "shorten_lease") throw error{errc::database_error, "by the test"};
            });
            CHECK(kind_of([&] { requested_by_a_round(database, network); }) ==
                  errc::database_error);
            CHECK_FALSE(is_asked(other, "a"));
            CHECK(first.held());
            CHECK(requested_by_a_round(database) == 2);
        }
        SUBCASE("after the request's commit, whose reply is lost") {
            network.after([](std::string_view what) {
                if (what == "commit") interception::lose_reply();
            });
            CHECK_THROWS_AS(requested_by_a_round(database, network), error);
            CHECK(is_asked(other, "a"));
            CHECK(requested_by_a_round(database) == 1);
        }
        CHECK(eventually([&] { return !first.held() && !second.held(); }));
    }
}

TEST_CASE("a clock that was set back, and a limit that was written by hand, ask for nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        for (const char* name : {"future", "endless", "zero", "overdue"}) {
            holder.set_max_hold(name, 1h);
        }
        const auto held = holder.acquire_all({"future", "endless", "zero", "overdue"});
        age(database, "'future'", -2h);
        age(database, "'endless', 'zero', 'overdue'", 2h);
        database.run(
            "update rowlock_policy set max_hold_us = 9223372036854775807 where name = 'endless'");
        database.run("update rowlock_policy set max_hold_us = 0 where name = 'zero'");
        CHECK_FALSE(holder.max_hold("zero"));
        CHECK(requested_by_a_round(database) == 1);
        CHECK(is_asked(holder, "overdue"));
        CHECK_THROWS_AS(database.run("update rowlock_policy set max_hold_us = -1"), error);
    }
}

TEST_CASE("a policy outlives the lease's row, until it is removed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        CHECK_FALSE(locks.max_hold("job"));
        locks.set_max_hold("job", 1h);
        locks.set_max_hold("job", 90min);
        locks.set_max_hold("Job", 3h);
        locks.set_max_hold("never used", 1234ms);
        // Policies need no session.
        CHECK(database.number("select count(*) from rowlock_session") == 0);
        locks.acquire("job").release();
        const std::string an_hour = database.speaks() == sql::dialect::postgresql
                                        ? " - interval '2 hours'"
                                        : " - 7200000000";
        REQUIRE(eventually([&] {
            database.run("update rowlock_lock set changed_at = changed_at" + an_hour);
            database.run("update rowlock_token_floor set raised_at = raised_at" + an_hour);
            requested_by_a_round(database);
            return database.number("select count(*) from rowlock_lock") == 0;
        }));
        CHECK(locks.max_hold("job") == 90min);
        CHECK(locks.max_hold("Job") == 3h);
        CHECK(locks.max_hold("never used") == 1234ms);

        const auto lease = locks.acquire("job");
        age(database, "'job'", 2h);
        locks.set_max_hold("job", std::nullopt);
        locks.set_max_hold("job", std::nullopt);
        CHECK_FALSE(locks.max_hold("job"));
        CHECK(locks.max_hold("Job") == 3h);
        CHECK(requested_by_a_round(database) == 0);
        CHECK(lease.held());
        locks.set_max_hold("job", 1h);
        CHECK(requested_by_a_round(database) == 1);
    }
}

TEST_CASE("a limit outside 10 ms to 366 days is refused, and changes nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        locks.set_max_hold("job", 10ms);
        CHECK(locks.max_hold("job") == 10ms);
        locks.set_max_hold("job", 24h * 366);
        for (const std::chrono::milliseconds limit :
             {9ms, 0ms, -1ms, 24h * 366 + 1ms, std::chrono::milliseconds::max()}) {
            CHECK(kind_of([&] { locks.set_max_hold("job", limit); }) == errc::invalid_options);
        }
        CHECK(locks.max_hold("job") == 24h * 366);
        CHECK(kind_of([&] { locks.set_max_hold("", 1h); }) == errc::invalid_name);
    }
}
