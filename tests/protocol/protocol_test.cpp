// A client that knows docs/protocol.md alone takes part beside rowlock's own. Each step of it is
// the test's, so that every interleaving is forced.

#include "support/blocked.hpp"
#include "support/foreign_client.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/reaper.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::acquire_soon;
using support::eventually;
using support::has_ended;
using support::lock_database;
using support::places;
using support::protocol_connection;
using support::protocol_session;
using support::somebody_waits_for_a_row;
namespace foreign = support::foreign;

namespace {

template <typename Action>
auto in_background(Action action) {
    return std::async(std::launch::async, std::move(action));
}

/// Polls until the entry is served.
std::int64_t served(foreign::client& who, const std::string& name, std::int64_t grant_id) {
    std::optional<std::int64_t> token;
    REQUIRE(eventually([&] { return (token = who.poll(name, grant_id)).has_value(); }));
    return *token;
}

/// Lets a session expire at once.
void expire(lock_database& database, std::int64_t session) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    database.run(std::string{"update rowlock_session set expires_at = "} +
                 (postgresql ? "'epoch'" : "0") + " where id = " + std::to_string(session));
}

bool has_ended(lock_database& database, std::int64_t session) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    return database.number(std::string{"select count(*) from rowlock_session where ended = "} +
                           (postgresql ? "true" : "1") + " and id = " + std::to_string(session)) ==
           1;
}

/// Whether a session expires later than in a minute.
bool lives_for_minutes(lock_database& database, std::int64_t session) {
    const char* later =
        "cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * "
        "1000 + 60000000";
    if (database.speaks() == sql::dialect::postgresql) {
        later = "clock_timestamp() + interval '1 minute'";
    } else if (database.speaks() == sql::dialect::mysql) {
        later = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + 60000000";
    }
    return database.number("select count(*) from rowlock_session where expires_at > " +
                           std::string{later} + " and id = " + std::to_string(session)) == 1;
}

/// A client whose polls find nothing in time: it depends on its wake-ups.
client_options woken_by(wakeup_mode how) {
    return {.poll_interval = 1h, .wake_ups = how};
}

}  // namespace

// --- exclusion, and tokens

TEST_CASE("a foreign holder keeps rowlock's clients out, and tokens rise over both") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        client locks{database.source(), database.options()};
        std::int64_t last = 0;
        const auto rises = [&](std::int64_t token) {
            const bool more = token > last;
            last = token;
            return more;
        };
        for (const std::int64_t round : {1, 2, 3}) {
            const auto theirs = other.try_acquire("job", 10 + round);
            REQUIRE(theirs);
            CHECK(rises(*theirs));
            CHECK_FALSE(locks.try_acquire("job"));
            CHECK(other.heartbeat());
            CHECK(other.release("job", 10 + round));
            CHECK_FALSE(other.release("job", 10 + round));
            auto ours = locks.try_acquire("job");
            REQUIRE(ours);
            CHECK(rises(ours->token().value()));
            CHECK_FALSE(other.try_acquire("job", 20 + round));
            CHECK_FALSE(other.release("job", 20 + round));
            CHECK(ours->held());
            ours->release();
        }
    }
}

TEST_CASE("the identity of the server that a foreign client makes is that of the library") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        const protocol_connection hand{database};
        CHECK(other.server() == hand.leases().sessions().server_of(hand.db(), support::soon()));
        CHECK(other.lives());
    }
}

TEST_CASE(
    "a foreign client that meets a new server raises the floor, and lives on that one alone") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        constexpr std::int64_t raised = 5 + (std::int64_t{1} << 32);
        database.run("update rowlock_token_floor set floor = 5, server_identity = 'another'");
        foreign::client other{database};
        client locks{database.source(), database.options()};
        CHECK(other.try_acquire("theirs", 11) == raised + 1);
        CHECK(locks.acquire("ours").token().value() == raised + 1);
        database.run("update rowlock_session set server_identity = 'else:where:99/FFFFFFFF'");
        CHECK_FALSE(other.heartbeat());
        CHECK_FALSE(other.lives());
        CHECK(other.change("take", {"ours", other.session(), 12, nullptr, nullptr, nullptr,
                                    raised + 1, raised + 2}) == 0);
        // What it holds stays held until it expires.
        CHECK_FALSE(foreign::client{database}.try_acquire("theirs", 13));
    }
}

TEST_CASE("threads of foreign and of rowlock's clients exclude each other") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr int rounds = 10;
        client locks{database.source(), database.options({.poll_interval = 50ms})};
        std::atomic<int> inside{0};
        std::atomic<int> overlaps{0};
        std::atomic<int> done{0};
        std::atomic<std::int64_t> last{0};
        std::atomic<int> falls{0};
        const auto work = [&](std::int64_t token) {
            if (inside.fetch_add(1) != 0) ++overlaps;
            if (last.exchange(token) >= token) ++falls;
            std::this_thread::yield();
            --inside;
            ++done;
        };
        std::vector<std::future<void>> crew;
        for (const std::int64_t each : {1, 2}) {
            crew.push_back(in_background([&] {
                for (int i = 0; i < rounds; ++i) {
                    const auto lease = acquire_soon(locks, "job");
                    work(lease.token().value());
                }
            }));
            crew.push_back(in_background([&, each] {
                foreign::client other{database};
                for (std::int64_t i = 0; i < rounds; ++i) {
                    const std::int64_t id = 1000 * each + i;
                    auto token = other.try_acquire("job", id);
                    if (!token) {
                        other.enqueue("job", id);
                        const bool got =
                            eventually([&] { return (token = other.poll("job", id)).has_value(); });
                        if (!got) throw std::runtime_error{"the turn did not come"};
                    }
                    work(*token);
                    if (!other.release("job", id)) throw std::runtime_error{"it was not held"};
                }
            }));
        }
        for (auto& each : crew) CHECK_NOTHROW(each.get());
        CHECK(overlaps == 0);
        CHECK(falls == 0);
        CHECK(done == 4 * rounds);
    }
}

// --- the queue

TEST_CASE("a foreign client queues behind a rowlock holder and is served in order") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        client holder{database.source(), database.options()};
        client waiter{database.source(), database.options()};
        auto held = holder.acquire("job");
        other.enqueue("job", 22);
        auto waiting = in_background([&] { return acquire_soon(waiter, "job"); });
        REQUIRE(places(database, 2));
        CHECK_FALSE(other.poll("job", 22));
        const auto first = held.token().value();
        held.release();
        const auto theirs = served(other, "job", 22);
        CHECK(theirs > first);
        CHECK_FALSE(has_ended(waiting));
        CHECK_FALSE(holder.try_acquire("job"));
        CHECK(other.release("job", 22));
        CHECK(waiting.get().token().value() > theirs);
    }
}

TEST_CASE("a foreign client neither passes a waiter nor is granted what it gave up") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        const protocol_session holder{database, session_id{1}};
        REQUIRE(holder.try_acquire("job", grant_id{11}));
        holder.enqueue("job", grant_id{12});
        other.enqueue("job", 22);
        REQUIRE(holder.free("job", grant_id{11}));
        CHECK_FALSE(other.try_acquire("job", 23));
        CHECK(other.cancel("job", 22));
        CHECK_FALSE(other.cancel("job", 22));
        const auto next = holder.on().grant_next("job");
        REQUIRE(next);
        CHECK(next->grant_id == grant_id{12});
        REQUIRE(holder.free("job", grant_id{12}));
        CHECK_FALSE(holder.on().grant_next("job"));
        CHECK(other.try_acquire("job", 24));
    }
}

TEST_CASE("control: a foreign client whose probe overlooks the queue passes a waiter") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        foreign::client other{database};
        const protocol_session waiter{database, session_id{1}};
        waiter.enqueue("job", grant_id{12});
        CHECK_FALSE(other.try_acquire("job", 21));
        if (postgresql) {
            other.sql().replace("probe", "w.name = $1::text and {waits}", "false");
        } else {
            other.sql().replace("probe", "w.name = $1 and m.id = w.session and {waits}", "1 = 0");
        }
        CHECK(other.try_acquire("job", 21));
    }
}

TEST_CASE("a foreign client serves the queue of a holder that died, and takes its own turn") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        const protocol_session holder{database, session_id{1}};
        const protocol_session waiter{database, session_id{2}};
        REQUIRE(holder.try_acquire("job", grant_id{11}));
        waiter.enqueue("job", grant_id{21});
        other.enqueue("job", 22);
        CHECK_FALSE(other.poll("job", 22));
        CHECK_FALSE(has_ended(database, 1));
        expire(database, 1);
        CHECK_FALSE(other.poll("job", 22));
        CHECK(has_ended(database, 1));
        CHECK(waiter.on().served("job", session_id{2}, grant_id{21}));
        CHECK_FALSE(holder.heartbeat());
        waiter.end();
        CHECK(served(other, "job", 22) == 3);
    }
}

TEST_CASE("a request for several locks is neither served alone nor passed by a foreign client") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        foreign::client third{database};
        client locks{database.source(), database.options({.poll_interval = 20ms})};
        REQUIRE(other.try_acquire("a", 11));
        REQUIRE(third.try_acquire("b", 12));
        auto waiting = in_background([&] {
            return locks.try_acquire_all_for({"a", "b"}, support::patience).has_value();
        });
        REQUIRE(places(database, 2));
        third.enqueue("a", 13);
        CHECK(other.release("a", 11));
        CHECK_FALSE(third.poll("a", 13));
        CHECK_FALSE(has_ended(waiting));
        CHECK(third.release("b", 12));
        CHECK(waiting.get());
        CHECK(served(third, "a", 13) > 1);
    }
}

// --- wake-ups

TEST_CASE("a rowlock waiter is woken by a foreign client's notification") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        bool woken = false;
        for (int i = 0; i < 20 && !woken; ++i) {
            const auto name = "job " + std::to_string(i);
            foreign::client other{database};
            client locks{database.source(), woken_by(wakeup_mode::database)};
            REQUIRE(other.try_acquire(name, 11));
            auto waiting = in_background([&] { return acquire_soon(locks, name); });
            REQUIRE(places(database, 1));
            REQUIRE(eventually([&] { return locks.stats().polls > 0; }));
            CHECK(other.release(name, 11));
            CHECK(waiting.get().held());
            woken = locks.stats().wake_ups == 1;  // before a second poll of its own, at its start
        }
        CHECK(woken);
    }
}

namespace {

/// A foreign client releases to a rowlock waiter and sends a datagram. Whether that woke it, before
/// a poll of its own found the grant.
bool wakes_by_datagram(lock_database& database, const std::string& name) {
    foreign::client other{database};
    client locks{database.source(), woken_by(wakeup_mode::automatic)};
    REQUIRE(other.try_acquire(name, 11));
    auto waiting = in_background([&] { return acquire_soon(locks, name); });
    REQUIRE(places(database, 1));
    REQUIRE(eventually([&] { return locks.stats().polls > 0; }));
    const auto entry = database.run("select session, grant_id from rowlock_ticket");
    const auto row = other.run("wake_address", {entry.integer(0, 0)});
    REQUIRE_FALSE(row.is_null(0, 2));
    const auto address = row.integer(0, 0);
    const std::string secret{row.text(0, 1)};
    // Believed, this would be a second holder, with another token.
    CHECK(foreign::post(address,
                        foreign::grant_message(entry.integer(0, 1), 99, std::string(32, '0'))));
    CHECK(other.change("release", {name, other.session(), 11}) == 1);
    const auto next = other.grant_next(name);
    if (next) {
        CHECK(next->grant_id == entry.integer(0, 1));
        foreign::post(address, foreign::grant_message(next->grant_id, next->token, secret));
    }
    const auto lease = waiting.get();
    CHECK(lease.held());
    CHECK(lease.token().value() == 2);
    return locks.stats().wake_ups == 1;
}

}  // namespace

TEST_CASE("a rowlock waiter is woken by a foreign client's datagram, if it is proved") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        // On MariaDB a waiter polls often at first; on SQLite each commit wakes it as well.
        constexpr int most = 20;
        bool woken = false;
        for (int tries = 0; tries < most && !woken; ++tries) {
            woken = wakes_by_datagram(database, "job " + std::to_string(tries));
            if (database.speaks() == sql::dialect::sqlite) break;
        }
        if (database.speaks() != sql::dialect::sqlite) CHECK(woken);
    }
}

TEST_CASE("a rowlock waiter that sleeps in the server is woken by a foreign client") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        foreign::client other{database};
        client locks{database.source(), woken_by(wakeup_mode::database)};
        REQUIRE(other.try_acquire("job", 11));
        auto waiting = in_background([&] { return acquire_soon(locks, "job"); });
        REQUIRE(places(database, 1));
        const auto session = database.number("select session from rowlock_ticket");
        REQUIRE(eventually([&] {
            return database.number("select is_used_lock('rowlock_wake_" + std::to_string(session) +
                                   "') is not null") == 1;
        }));
        CHECK(other.release("job", 11));
        CHECK(waiting.get().held());
    }
}

// --- the end of a hold

TEST_CASE("rowlock takes over from a foreign client that died, once its ttl is over") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client dead{database};
        const auto theirs = dead.try_acquire("job", 11);
        REQUIRE(theirs);
        client locks{database.source(), database.options()};
        CHECK_FALSE(locks.try_acquire("job"));
        expire(database, dead.session());
        const auto ours = acquire_soon(locks, "job");
        CHECK(has_ended(database, dead.session()));
        CHECK(ours.token().value() > *theirs);
        CHECK_FALSE(dead.heartbeat());
        CHECK_FALSE(dead.lives());
        CHECK_FALSE(dead.release("job", 11));
        dead.begin();
        CHECK_FALSE(dead.fence("job", *theirs));
        dead.roll_back();
        CHECK(ours.held());
    }
}

TEST_CASE("a heartbeat keeps a foreign client's lease, and rowlock's waiter waiting") {
    ROWLOCK_FOR_A_CLIENT(database) {
        foreign::client other{database, 1h};
        REQUIRE(other.try_acquire("job", 11));
        client locks{database.source(), database.options({.poll_interval = 10ms})};
        auto waiting = in_background([&] { return acquire_soon(locks, "job"); });
        REQUIRE(places(database, 1));
        // It would expire in half a minute.
        const protocol_connection hand{database};
        const session_id its{other.session()};
        REQUIRE(hand.leases().sessions().extend(hand.db(), its, 30s, support::soon()));
        database.run("update rowlock_session set ttl_us = 3600000000");
        CHECK(other.heartbeat());
        CHECK(lives_for_minutes(database, other.session()));
        const auto polls = locks.stats().polls;
        CHECK(eventually([&] { return locks.stats().polls > polls + 1; }));
        CHECK_FALSE(has_ended(waiting));
        CHECK(other.release("job", 11));
        CHECK(waiting.get().held());
    }
}

TEST_CASE("a foreign fence holds while the lease is held, and refuses after its loss") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        client locks{database.source(), database.options()};
        const auto token = other.try_acquire("job", 11);
        REQUIRE(token);
        other.begin();
        CHECK(other.fence("job", *token));
        other.commit();
        CHECK(locks.force_release("job"));
        other.begin();
        CHECK_FALSE(other.fence("job", *token));
        other.roll_back();
        const auto ours = locks.acquire("job");
        CHECK(ours.token().value() > *token);
        other.begin();
        CHECK_FALSE(other.fence("job", *token));
        other.roll_back();
    }
}

TEST_CASE("a foreign client's fenced transaction keeps a forced release waiting until its end") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        foreign::client other{database};
        client locks{database.source(), database.options()};
        const auto token = other.try_acquire("job", 11);
        REQUIRE(token);
        other.begin();
        REQUIRE(other.fence("job", *token));
        auto breaking = in_background([&] { return locks.force_release("job"); });
        CHECK(somebody_waits_for_a_row(database));
        CHECK_FALSE(has_ended(breaking));
        CHECK(protocol_connection{database}.is_live(session_id{other.session()}));
        other.commit();
        CHECK(breaking.get());
        other.begin();
        CHECK_FALSE(other.fence("job", *token));
        other.roll_back();
    }
}

TEST_CASE("a foreign holder learns by its heartbeat that its lease was broken") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        client locks{database.source(), database.options()};
        REQUIRE(other.try_acquire("job", 11));
        REQUIRE(other.try_acquire("else", 12));
        CHECK(locks.force_release("job"));
        CHECK_FALSE(other.heartbeat(0));
        const auto state = other.run("session_state", {other.session()});
        CHECK(state.integer(0, 0) == 1);
        CHECK(state.integer(0, 1) == 1);
        const auto left = other.run("session_leases", {other.session()});
        REQUIRE(left.rows() == 1);
        CHECK(left.text(0, 0) == "else");
        CHECK(other.heartbeat(1));
    }
}

TEST_CASE("a foreign holder is asked for its lease, by a client or for a hold that is too long") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        client locks{database.source(), database.options()};
        const auto token = other.try_acquire("job", 11);
        REQUIRE(token);
        CHECK(locks.request_release("job", fencing_token{*token},
                                    {.within = 1h, .reason = "maintenance"}));
        CHECK_FALSE(other.heartbeat(0));
        auto asked = other.run("session_leases", {other.session()});
        REQUIRE(asked.rows() == 1);
        CHECK(asked.integer(0, 3) > 0);
        CHECK(asked.text(0, 5) == "maintenance");
        CHECK(other.heartbeat(1));
        CHECK(other.release("job", 11));

        REQUIRE(other.try_acquire("job", 12));
        locks.set_max_hold("job", 10ms);
        CHECK(eventually([&] {
            static_cast<void>(reap(database.source(), database.reaping(1h, 1h)));
            return !other.heartbeat(1);
        }));
        asked = other.run("session_leases", {other.session()});
        REQUIRE(asked.rows() == 1);
        CHECK_FALSE(asked.is_null(0, 3));
    }
}

TEST_CASE("a foreign client breaks a lease of rowlock's, which notices") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        foreign::client other{database};
        client locks{database.source(), database.watchful()};
        const auto ours = locks.acquire("job");
        const auto seen = other.probe("job");
        other.begin();
        CHECK(other.change("force_release", {"job", seen.token, seen.holder}) == 1);
        CHECK(other.change("bump_revision", {seen.holder}) == 1);
        other.commit();
        CHECK(other.try_acquire("job", 11) == ours.token().value() + 2);
        CHECK(eventually([&] { return !ours.held(); }));
        CHECK(eventually([&] { return ours.lost().stop_requested(); }));
    }
}

// --- what only PostgreSQL has

TEST_CASE("a promised token goes to the waiter it is promised to, by a foreign client too") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        foreign::client other{database};
        const protocol_session holder{database, session_id{1}};
        const protocol_session waiter{database, session_id{2}};
        REQUIRE(holder.try_acquire("job", grant_id{11}));
        waiter.enqueue("job", grant_id{21});
        waiter.enqueue("job", grant_id{22});
        database.run("update rowlock_lock set successor = 22");
        REQUIRE(holder.free("job", grant_id{11}));
        CHECK(other.probe("job").waited);
        auto next = other.grant_next("job");
        REQUIRE(next);
        CHECK(next->grant_id == 22);
        CHECK(next->token == 2);
        CHECK(database.number("select count(*) from rowlock_lock where successor is null") == 1);
        // Promised to a waiter that is gone: the token is left out.
        database.run("update rowlock_lock set successor = 22");
        REQUIRE(waiter.free("job", grant_id{22}));
        next = other.grant_next("job");
        REQUIRE(next);
        CHECK(next->grant_id == 21);
        CHECK(next->token == 4);
        database.run("update rowlock_lock set successor = 22");
        REQUIRE(waiter.free("job", grant_id{21}));
        CHECK(other.try_acquire("job", 33) == 6);
    }
}

TEST_CASE("a waiter of another server that a token is promised to blocks a foreign client") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        foreign::client other{database};
        const protocol_session holder{database, session_id{1}};
        const protocol_session promised{database, session_id{2}};
        REQUIRE(holder.try_acquire("job", grant_id{11}));
        promised.enqueue("job", grant_id{22});
        database.run("update rowlock_lock set successor = 22");
        database.run("update rowlock_session set server_identity = '1/FFFFFFFF' where id = 2");
        other.enqueue("job", 33);
        REQUIRE(holder.free("job", grant_id{11}));
        CHECK_FALSE(other.try_acquire("job", 34));
        CHECK_FALSE(other.poll("job", 33));
        promised.end();
        CHECK(other.poll("job", 33) == 3);
    }
}

TEST_CASE("a foreign entry that rowlock's clients overlook makes itself seen") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        foreign::client other{database};
        const protocol_session holder{database, session_id{1}};
        REQUIRE(holder.try_acquire("job", grant_id{11}));
        other.enqueue("job", 22);
        database.run("update rowlock_lock set served = 1000");
        CHECK_FALSE(other.poll("job", 22));
        const auto done = holder.on().release("job", session_id{1}, grant_id{11});
        REQUIRE(done.next);
        CHECK(done.next->grant_id == grant_id{22});
        CHECK(other.poll("job", 22) == 2);
    }
}

// --- the rules are needed

namespace {

/// A broken rule: a part of a statement of the page, and what stands in its place.
struct rule {
    const char* statement;
    const char* on_postgresql;
    const char* elsewhere;
};

void break_rule(foreign::client& who, sql::dialect speaks, const rule& which) {
    const bool postgresql = speaks == sql::dialect::postgresql;
    std::string part = postgresql ? which.on_postgresql : which.elsewhere;
    std::string by;
    // Each parameter stays, or the statement would not take it.
    for (auto at = part.find('$'); at != std::string::npos; at = part.find('$', at + 1)) {
        by += "and " + part.substr(at, 2) + (postgresql ? "::bigint" : "") + " is not null ";
    }
    who.sql().replace(which.statement, part, by);
}

/// Each scene returns how many clients believe at its end that they hold the lease.
using scene = int (*)(lock_database&, foreign::client&, const std::string&);

int release_of_a_lost_lease(lock_database& database, foreign::client& late,
                            const std::string& name) {
    client first{database.source(), database.options()};
    client second{database.source(), database.options()};
    REQUIRE(late.try_acquire(name, 11));
    expire(database, late.session());
    const auto one = first.try_acquire(name);
    REQUIRE(one);
    late.change("release", {name, late.session(), 11});
    const auto two = second.try_acquire(name);
    return int{one->held()} + int{two.has_value()};
}

int take_of_an_old_probe(lock_database& database, foreign::client& slow, const std::string& name) {
    client first{database.source(), database.options()};
    REQUIRE(slow.try_acquire(name, 11));
    REQUIRE(slow.release(name, 11));
    const auto seen = slow.probe(name);
    REQUIRE(seen.free);
    const auto one = first.try_acquire(name);
    REQUIRE(one);
    return int{one->held()} + int{slow.take(name, 12, seen)};
}

int heartbeat_of_an_ended_session(lock_database& database, foreign::client& stopped,
                                  const std::string& name) {
    client first{database.source(), database.options()};
    REQUIRE(stopped.try_acquire(name, 11));
    expire(database, stopped.session());
    const auto one = first.try_acquire(name);
    REQUIRE(one);
    return int{one->held()} + int{stopped.heartbeat()};
}

int end_of_a_live_session(lock_database& database, foreign::client& rude, const std::string& name) {
    client first{database.source(), database.options()};
    const auto one = first.try_acquire(name);
    REQUIRE(one);
    rude.change("end_expired_session", {rude.probe(name).holder});
    return int{one->held()} + int{rude.try_acquire(name, 11).has_value()};
}

struct broken {
    scene play;
    rule which;
};

const std::array all_broken{
    broken{release_of_a_lost_lease,
           {"release", "and session = $2::bigint and grant_id = $3::bigint",
            "and session = $2 and grant_id = $3"}},
    broken{take_of_an_old_probe, {"take", "and token = $7::bigint", "and token = $7"}},
    broken{heartbeat_of_an_ended_session,
           {"heartbeat", "and not m.ended and m.expires_at > clock.now",
            "and ended = 0 and expires_at > {now}"}},
    broken{
        end_of_a_live_session,
        {"end_expired_session", "and expires_at <= clock_timestamp()", "and expires_at <= {now}"}},
};

}  // namespace

TEST_CASE("late, slow and stopped foreign clients cost rowlock's holder nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const auto& each : all_broken) {
            CAPTURE(each.which.statement);
            foreign::client other{database};
            CHECK(each.play(database, other, each.which.statement) == 1);
        }
    }
}

TEST_CASE("control: without one condition of the page the same clients are a second holder") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const auto& each : all_broken) {
            CAPTURE(each.which.statement);
            foreign::client other{database};
            break_rule(other, database.speaks(), each.which);
            CHECK(each.play(database, other, each.which.statement) == 2);
        }
    }
}
