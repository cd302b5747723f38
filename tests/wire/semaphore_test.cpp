// Semaphores as clients use them: limits, fairness and wake-ups over several clients, and what
// becomes of permits when a holder vanishes, a reply is lost, or a row is changed by hand.
// shows: promise-12

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "support/at_end.hpp"
#include "support/blocked.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/hints.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include "support/waits.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::enters_or_ends;
using support::eventually;
using support::interception;
using support::kind_of;
using support::lock_database;
using support::patience;

namespace {

permits acquire_soon(semaphore& from, std::int64_t count, const permit_options& options = {}) {
    auto got = from.try_acquire_for(count, patience, options);
    if (!got) throw std::runtime_error{"no permits came"};
    return std::move(*got);
}

std::future<permits> waits(semaphore& from, std::int64_t count) {
    return std::async(std::launch::async, [&from, count] { return acquire_soon(from, count); });
}

/// Waits until that many entries are in the queues.
bool entries(lock_database& database, std::int64_t count) {
    return eventually(
        [&] { return database.number("select count(*) from rowlock_ticket") == count; });
}

bool used(semaphore& of, std::int64_t count) {
    return eventually([&] { return of.inspect().value().used == count; });
}

/// Whether every counter is the sum of its holds.
bool counts(lock_database& database) {
    return database.number(
               "select count(*) from rowlock_lock p where p.used <> (select "
               "coalesce(sum(s.weight), 0) from rowlock_hold s where s.name = p.name)") == 0;
}

/// Whether this is the statement that commits the first half of a release.
bool gives(std::string_view what) {
    return what == "give_permits" || what == "return_permits";
}

}  // namespace

TEST_CASE("a semaphore lets so many callers in, and gives a permit back once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        client others{database.source(), database.options()};
        semaphore api{locks, "api"};
        semaphore same{others, "api"};
        CHECK_FALSE(api.inspect().has_value());
        CHECK(api.available() == 0);
        CHECK(kind_of([&] { (void)api.try_acquire(); }) == errc::invalid_options);
        CHECK(api.create(3));
        CHECK_FALSE(same.create(5));
        auto first = api.acquire(2, {.note = "two"});
        CHECK(first.held());
        CHECK(first.count() == 2);
        CHECK(first.name() == "api");
        CHECK(first.remaining() > 0ms);
        auto second = same.try_acquire();
        REQUIRE(second.has_value());
        CHECK(second->token() > first.token());
        CHECK_FALSE(same.try_acquire().has_value());
        CHECK_FALSE(same.try_acquire_for(1, 50ms).has_value());
        CHECK(entries(database, 0));
        CHECK(api.available() == 0);
        const auto holders = same.holders();
        REQUIRE(holders.size() == 2);
        CHECK(holders[0].permits == 2);
        CHECK(holders[0].who.note == "two");
        CHECK(holders[0].token == first.token());

        first.release();
        CHECK_FALSE(first.held());
        first.release();  // nothing more
        CHECK(api.available() == 2);
        { const auto moved = std::move(*second); }
        CHECK(used(api, 0));
        CHECK(counts(database));
        CHECK(kind_of([&] { (void)api.try_acquire(4); }) == errc::invalid_options);
        CHECK(kind_of([&] { (void)api.try_acquire(0); }) == errc::invalid_options);
        CHECK(kind_of([&] { api.set_capacity(-1); }) == errc::invalid_options);
        CHECK(kind_of([&] { (void)api.holders(0); }) == errc::invalid_options);
    }
}

TEST_CASE(
    "some of a hold's permits are given back, and serve a waiter while the others stay held") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        // No heartbeat, which looks for waiters as well, comes in time.
        client locks{database.source(), database.options({.ttl = 5min})};
        client others{database.source(), database.options({.ttl = 5min, .poll_interval = 1min})};
        semaphore api{locks, "api"};
        semaphore same{others, "api"};
        api.set_capacity(5);
        auto held = api.acquire(5);
        const auto token = held.token();
        auto waiting = waits(same, 2);
        REQUIRE(entries(database, 1));
        if (database.speaks() == sql::dialect::postgresql) {
            // Its first polls are over, which would serve it as well.
            const auto waiter = support::address_of(
                database, session_id{database.number("select session from rowlock_ticket")});
            REQUIRE(eventually([&] { return support::listens(database, waiter); }));
            std::uint64_t polls = 0;
            REQUIRE(eventually([&] {
                const auto before = std::exchange(polls, others.stats().polls);
                std::this_thread::sleep_for(500ms);
                return polls > 0 && polls == before;
            }));
        }
        held.release(2);
        REQUIRE(waiting.wait_for(20s) == std::future_status::ready);  // long before a poll
        auto next = waiting.get();
        CHECK(next.count() == 2);
        CHECK(next.token() > token);
        CHECK(held.held());
        CHECK(held.count() == 3);
        CHECK(held.token() == token);
        CHECK(used(api, 5));
        CHECK_FALSE(same.try_acquire());

        for (const std::int64_t wrong : {-1, 0, 4}) {
            CHECK(kind_of([&] { held.release(wrong); }) == errc::invalid_options);
        }
        CHECK(held.held());
        held.release(1);
        held.release(2);  // all that is left
        CHECK_FALSE(held.held());
        CHECK(used(api, 2));
        CHECK(kind_of([&] { held.release(1); }) == errc::not_owner);
        held.release();
        CHECK(used(api, 2));
        next.release();
        CHECK(used(api, 0));
        CHECK(counts(database));
        CHECK(kind_of([] { permits{}.release(1); }) == errc::not_owner);
        CHECK(eventually([&] { return locks.stats().held == 0 && others.stats().held == 0; }));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a partial release whose reply was lost gives back once, and a lost hold gives nothing",
    database) {
    interception network;
    client locks{network.wrap(database.source()), database.options()};
    client other{database.source(), database.options()};
    semaphore api{locks, "api"};
    semaphore same{other, "api"};
    api.set_capacity(5);
    auto held = api.acquire(5);
    std::atomic<bool> lost{false}, shrunk{false};
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    network.after([&](std::string_view what) {
        shrunk = shrunk || what.starts_with("shrink_permit");
        if (shrunk && (postgresql || what == "commit") && !lost.exchange(true)) {
            interception::lose_reply();
        }
    });
    held.release(2);
    REQUIRE(lost);
    network.after({});
    CHECK(held.count() == 3);
    CHECK(used(api, 3));
    auto taken = same.acquire(2);  // no more are free
    CHECK_FALSE(same.try_acquire());

    // Its own permits alone come back, whatever it says of them.
    REQUIRE(same.force_release(held.token()));
    CHECK(kind_of([&] { held.release(1); }) == errc::lock_lost);
    CHECK(used(same, 2));
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE(
    "a partial release that failed after its commit is not undone by the next one", database) {
    interception network;
    client locks{network.wrap(database.source()), database.options({.statement_timeout = 1s})};
    semaphore api{locks, "api"};
    api.set_capacity(5);
    auto held = api.acquire(5);
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    const auto caller = std::this_thread::get_id();
    std::atomic<bool> shrunk{false}, cut_off{false};
    network.after([&](std::string_view what) {
        shrunk = shrunk || what.starts_with("shrink_permit");
        if (!shrunk || !(postgresql || what == "commit")) return;
        cut_off = true;
        interception::lose_reply();
    });
    network.before([&](std::string_view) {
        if (cut_off && std::this_thread::get_id() == caller) interception::refuse_to_send();
    });
    CHECK_THROWS(held.release(3));
    REQUIRE(cut_off);
    network.after({});
    network.before({});
    held.release(1);
    CHECK(held.held());
    CHECK(held.count() == 1);
    CHECK(used(api, 1));
    CHECK(counts(database));
}

TEST_CASE("a fence covers the permits that a partial release keeps, and is waited for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        semaphore api{locks, "api"};
        api.set_capacity(3);
        auto held = api.acquire(3);
        const auto db = database.source().connect(support::soon());
        db->query("begin", support::soon());
        fence(*db, held);
        auto releasing = std::async(std::launch::async, [&] { held.release(2); });
        REQUIRE(support::somebody_waits_for_a_row(database));
        CHECK(api.inspect().value().used == 3);
        db->query("commit", support::soon());
        releasing.get();
        CHECK(used(api, 1));
        db->query("begin", support::soon());
        fence(*db, held);
        db->query("commit", support::soon());
        held.release();
        CHECK(used(api, 0));
    }
}

TEST_CASE("permits that are given back wake a waiter of another client, without a poll") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        client others{database.source(), database.options({.poll_interval = 1min})};
        semaphore api{locks, "api"};
        semaphore same{others, "api"};
        api.set_capacity(2);
        for (int i = 0; i < 3; ++i) {
            auto held = api.acquire(2);
            auto waiting = waits(same, 1);
            REQUIRE(entries(database, 1));
            held.release();
            CHECK(waiting.get().held());
        }
        CHECK(used(api, 0));
        CHECK(others.stats().held == 0);
        CHECK(counts(database));
    }
}

ROWLOCK_SIMULATED_CASE("a large request is served before smaller ones behind it, over clients",
                       database) {
    client locks{database.source(), database.options()};
    client others{database.source(), database.options()};
    semaphore api{locks, "api"};
    semaphore same{others, "api"};
    api.set_capacity(4);
    auto one = api.acquire(1);
    auto three = api.acquire(3);
    auto large = waits(same, 4);
    REQUIRE(entries(database, 1));
    auto small = waits(api, 1);
    REQUIRE(entries(database, 2));
    three.release();
    CHECK_FALSE(same.try_acquire().has_value());  // no newcomer passes either
    CHECK(small.wait_for(300ms) == std::future_status::timeout);
    one.release();
    auto got = large.get();
    CHECK(got.count() == 4);
    CHECK(small.wait_for(0s) == std::future_status::timeout);
    got.release();
    CHECK(small.get().token() > got.token());
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE("a waiter for permits that gives up lets the next one through", database) {
    client locks{database.source(), database.options({.poll_interval = 1min})};
    client others{database.source(), database.options({.poll_interval = 1min})};
    semaphore api{locks, "api"};
    semaphore same{others, "api"};
    api.set_capacity(3);
    auto held = api.acquire(2);
    std::stop_source stop;
    auto large = std::async(std::launch::async, [&] { return same.acquire(3, stop.get_token()); });
    const support::at_end stops{[&] { stop.request_stop(); }};
    REQUIRE(entries(database, 1));
    auto small = waits(api, 1);
    REQUIRE(entries(database, 2));
    stop.request_stop();
    CHECK_FALSE(large.get().has_value());
    CHECK(small.get().held());
    CHECK(counts(database));
}

TEST_CASE("a larger capacity serves waiters at once, a smaller one disturbs no holder") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        client others{database.source(), database.options({.poll_interval = 1min})};
        semaphore api{locks, "api"};
        semaphore same{others, "api"};
        api.set_capacity(1);
        auto held = api.acquire();
        auto waiting = waits(same, 1);
        REQUIRE(entries(database, 1));
        api.set_capacity(2);
        auto second = waiting.get();
        CHECK(second.held());
        api.set_capacity(1);
        CHECK(held.held());
        CHECK(second.held());
        CHECK(api.available() == 0);
        held.release();
        CHECK_FALSE(api.try_acquire().has_value());
        second.release();
        CHECK(api.try_acquire().has_value());
    }
}

ROWLOCK_SIMULATED_CASE("a destroyed client hands its permits to a waiter at once", database) {
    auto locks = std::make_unique<client>(database.source(), database.options());
    client others{database.source(), database.options({.poll_interval = 1min})};
    semaphore api{*locks, "api"};
    semaphore same{others, "api"};
    api.set_capacity(2);
    auto held = api.acquire(2);
    auto waiting = waits(same, 2);
    REQUIRE(entries(database, 1));
    locks.reset();
    CHECK_FALSE(held.held());
    CHECK(waiting.get().held());
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE(
    "permits of a client that vanished come back, and not before it knows that they are lost",
    database) {
    interception network;
    client cut_off{network.wrap(database.source()),
                   database.options({.ttl = 1s, .poll_interval = 100ms})};
    client others{database.source(), database.options({.poll_interval = 100ms})};
    semaphore api{cut_off, "api"};
    semaphore same{others, "api"};
    api.set_capacity(2);
    auto held = api.acquire(2);
    auto waiting = std::async(std::launch::async, [&] {
        auto got = acquire_soon(same, 1);
        // The holder's own clock has told it before.
        return std::pair{got.held(), held.held()};
    });
    REQUIRE(enters_or_ends(database, waiting, "rowlock_ticket"));
    network.before([](std::string_view) { interception::refuse_to_send(); });
    const auto [got, still_held] = waiting.get();
    CHECK(got);
    CHECK_FALSE(still_held);
    CHECK(eventually([&] { return held.lost().stop_requested(); }));
    CHECK(kind_of([&] { held.release(); }) == errc::lock_lost);
    network.before({});
    CHECK(counts(database));
    CHECK(same.inspect().value().used == 0);
}

ROWLOCK_SIMULATED_CASE(
    "an attempt takes permits from a client that vanished, with no waiter to do it", database) {
    interception network;
    client cut_off{network.wrap(database.source()), database.options({.ttl = 500ms})};
    client others{database.source(), database.options()};
    semaphore api{cut_off, "api"};
    semaphore same{others, "api"};
    api.set_capacity(1);
    const auto held = api.acquire();
    network.before([](std::string_view) { interception::refuse_to_send(); });
    CHECK(eventually([&] { return same.try_acquire().has_value(); }));
    CHECK_FALSE(held.held());
    network.before({});
}

TEST_CASE("permits of many clients that vanished come back together") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr int vanished = 30;
        client others{database.source(), database.options({.poll_interval = 10s})};
        semaphore same{others, "api"};
        for (const bool waits_before : {false, true}) {
            CAPTURE(waits_before);
            same.set_capacity(vanished);
            // Sessions without a client, of one permit each.
            const bool postgresql = database.speaks() == sql::dialect::postgresql;
            const std::string now = postgresql ? "clock_timestamp()" : "1";
            const auto protocol = protocol::make_semaphore_protocol(database.statements());
            const auto db = database.connect();
            for (int i = 1; i <= vanished; ++i) {
                const session_id id{(waits_before ? 1000 : 2000) + i};
                database.protocol().sessions().open(*db, {id, "owner", "host", "program", 1, 1min},
                                                    support::soon());
                const protocol::grant_request one{
                    .name = "api",
                    .session = id,
                    .grant_id = grant_id{static_cast<std::int64_t>(id)},
                    .thread = {},
                    .note = {},
                    .deadline_us = {},
                    .permits = {.count = 1}};
                REQUIRE(protocol->acquire(*db, one, support::soon()).what ==
                        protocol::attempt::outcome::granted);
            }
            const auto expire = [&] {
                database.run(
                    "update rowlock_session set expires_at = " +
                    std::string{postgresql ? "clock_timestamp() - interval '1 second'" : "1"} +
                    " where id between 1001 and 2999");
            };
            if (!waits_before) expire();
            auto waiting = waits(same, vanished);
            if (waits_before) {
                REQUIRE(entries(database, 1));
                expire();
            }
            CHECK(waiting.get().held());
            CHECK(used(same, 0));
            CHECK(counts(database));
        }
    }
}

ROWLOCK_SIMULATED_CASE("a hold of permits ends at its own deadline, and a waiter gets them",
                       database) {
    client locks{database.source(), database.options()};
    client others{database.source(), database.options({.poll_interval = 1min})};
    semaphore api{locks, "api"};
    semaphore same{others, "api"};
    api.set_capacity(1);
    auto held = acquire_soon(api, 1, {.max_duration = 600ms});
    auto waiting = waits(same, 1);
    const auto got = waiting.get();  // long before a poll interval is over
    CHECK(got.held());
    CHECK_FALSE(held.held());
    CHECK(kind_of([&] { held.release(); }) == errc::lock_lost);
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE(
    "permits whose reply was lost are found, and those given back meanwhile are not kept",
    database) {
    interception network;
    client locks{network.wrap(database.source()), database.options({.ttl = 1min, .heartbeat = 1s})};
    semaphore api{locks, "api"};
    api.set_capacity(3);
    const bool in_transaction = database.speaks() != sql::dialect::postgresql;
    std::atomic<bool> lost{false};
    network.lose_commit([](std::string_view what) { return what == "take_permits"; },
                        in_transaction, lost);
    auto held = api.acquire(2);
    REQUIRE(lost);
    CHECK(held.held());
    CHECK(api.inspect().value().used == 2);
    CHECK(locks.stats().unknown_outcomes == 1);

    lost = false;
    network.lose_commit(gives, in_transaction, lost);
    held.release();
    REQUIRE(lost);
    CHECK(used(api, 0));
    network.after({});
    CHECK(counts(database));
    CHECK(eventually([&] { return locks.stats().held == 0 && locks.stats().unresolved == 0; }));
}

// A waiter sees that a file of SQLite has changed.
TEST_CASE("a waiter is served although the reply to a release in the background was lost") {
    ROWLOCK_FOR_A_CLIENT(database) {
        interception network;
        client ours{network.wrap(database.source()),
                    database.options({.ttl = 2min, .heartbeat = 1s, .statement_timeout = 1s})};
        client theirs{database.source(), database.options({.ttl = 2min, .poll_interval = 1min})};
        semaphore api{ours, "api"};
        api.set_capacity(1);
        auto held = api.acquire();
        auto next = std::async(std::launch::async, [&] {
            return semaphore{theirs, "api"}.try_acquire_for(1, 110s);
        });
        REQUIRE(eventually([&] { return api.waiters().size() == 1; }));
        REQUIRE(eventually([&] { return theirs.stats().polls > 0; }));
        std::atomic<bool> refused{true};
        network.before([&](std::string_view what) {
            if (refused && gives(what)) interception::refuse_to_send();
        });
        CHECK_THROWS_AS(held.release(), error);
        std::atomic<bool> lost{false};
        network.lose_commit(gives, database.speaks() != sql::dialect::postgresql, lost);
        const auto freed = std::chrono::steady_clock::now();
        refused = false;
        CHECK(next.get());
        CHECK(lost);
        CHECK(std::chrono::steady_clock::now() - freed < 20s);
    }
}

ROWLOCK_SIMULATED_CASE("an enqueue for permits whose reply was lost leaves no permits behind",
                       database) {
    interception network;
    client locks{database.source(), database.options()};
    client slow{network.wrap(database.source()), database.watchful()};
    semaphore api{locks, "api"};
    semaphore same{slow, "api"};
    api.set_capacity(1);
    auto held = api.acquire();
    std::atomic<bool> lost{false};
    network.after([&](std::string_view what) {
        if (what == "enqueue" && !lost.exchange(true)) interception::lose_reply();
    });
    auto waiting = waits(same, 1);
    REQUIRE(eventually([&] { return lost.load(); }));
    held.release();
    auto got = waiting.get();
    CHECK(got.held());
    got.release();
    CHECK(used(api, 0));
    CHECK(entries(database, 0));
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE("a holder learns that its permits were taken by hand", database) {
    client locks{database.source(), database.watchful()};
    semaphore api{locks, "api"};
    api.set_capacity(1);
    const auto held = api.acquire();
    database.run("delete from rowlock_hold");
    CHECK(eventually([&] { return held.lost().stop_requested(); }));
    CHECK_FALSE(held.held());
    // The counter is wrong now; a reaper puts it right.
    CHECK(api.available() == 0);
    CHECK(reap(database.source()).counters_corrected == 1);
    CHECK(api.available() == 1);
}

ROWLOCK_SIMULATED_CASE("permits of our session that no part of the client holds are given back",
                       database) {
    support::event_log log;
    client locks{database.source(), database.watchful({.on_event = log.callback()})};
    semaphore api{locks, "api"};
    api.set_capacity(3);
    const auto held = api.acquire();
    const std::string now =
        database.speaks() == sql::dialect::postgresql ? "clock_timestamp()" : "1";
    database.run("update rowlock_lock set used = 3");
    database.run(
        "insert into rowlock_hold (name, grant_id, session, weight, token, acquired_at) "
        "select 'api', 77, session, 2, 99, " +
        now + " from rowlock_hold");
    // A raised revision asks for a comparison.
    database.run("update rowlock_session set revision = revision + 1");
    CHECK(used(api, 1));
    CHECK(held.held());
    CHECK(eventually([&] { return log.has(event_kind::resolved); }));
}

TEST_CASE("permits are never more than there are, whatever clients do at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr int capacity = 5;
        constexpr int turns = 12;
        std::array<std::unique_ptr<client>, 3> clients;
        for (auto& each : clients) {
            each = std::make_unique<client>(database.source(), database.options());
        }
        semaphore{*clients[0], "api"}.set_capacity(capacity);
        std::atomic<std::int64_t> in_use{0};
        std::atomic<std::int64_t> most{0};
        std::atomic<int> done{0};
        std::vector<std::jthread> threads;
        for (int i = 0; i < 9; ++i) {
            threads.emplace_back([&, i] {
                semaphore api{*clients.at(static_cast<std::size_t>(i % 3)), "api"};
                for (int turn = 0; turn < turns; ++turn) {
                    const std::int64_t count = 1 + (i + turn) % 4;
                    auto got = acquire_soon(api, count);
                    const auto now = in_use += count;
                    auto before = most.load();
                    while (now > before && !most.compare_exchange_weak(before, now)) {
                    }
                    std::this_thread::yield();
                    in_use -= count;
                    got.release();
                    ++done;
                }
            });
        }
        threads.clear();
        CHECK(done == 9 * turns);
        CHECK(most <= capacity);
        CHECK(most > 1);
        semaphore api{*clients[0], "api"};
        CHECK(used(api, 0));
        CHECK(entries(database, 0));
        CHECK(counts(database));
        for (const auto& each : clients) CHECK(each->stats().held == 0);
    }
}
