// Several locks at once, as programs use them: all or none, over several clients, in any order of
// the names; and what becomes of them after lost replies, lost entries, losses and time limits.
// shows: promise-14

#include "support/at_end.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
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
using names = std::vector<lock_request>;

namespace {

std::int64_t held(support::lock_database& database) {
    return database.number("select count(*) from rowlock_lock where session is not null");
}

std::int64_t entries(support::lock_database& database) {
    return database.number("select count(*) from rowlock_ticket");
}

/// Polls so seldom that only a wake-up can end a wait within the time of a test.
client_options sleepy(support::lock_database& database) {
    return database.options({.poll_interval = 1h});
}

std::future<std::optional<multi_lease>> waits_for(client& locks, names wanted,
                                                  std::chrono::milliseconds time = 20s) {
    return std::async(std::launch::async, [&locks, wanted = std::move(wanted), time] {
        return locks.try_acquire_all_for(wanted, time);
    });
}

}  // namespace

TEST_CASE("all locks are held together, released together, and each has its own token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        client other{database.source(), database.options()};
        auto all = locks.acquire_all({"b", "c", "a"}, {.note = "transfer"});
        CHECK(all.held());
        CHECK(all.remaining() > 0ms);
        CHECK_FALSE(all.lost().stop_requested());
        REQUIRE(all.size() == 3);
        CHECK(all.leases()[0].name() == "a");
        CHECK(all["c"].held());
        CHECK(kind_of([&] { static_cast<void>(all["d"]); }) == errc::not_owner);
        for (const auto& each : all.leases()) {
            const auto seen = other.inspect(each.name());
            REQUIRE(seen);
            REQUIRE(seen->holder);
            CHECK(seen->token == each.token());
            CHECK(seen->holder->note == "transfer");
            CHECK_FALSE(other.try_acquire(each.name()));
        }
        CHECK_FALSE(other.try_acquire_all({"c", "d"}));
        CHECK_FALSE(other.inspect("d").has_value());
        all.release();
        CHECK_FALSE(all.held());
        CHECK(held(database) == 0);
        CHECK_NOTHROW(all.release());  // again
        {
            const auto next = other.try_acquire_all({"c", "d"});
            REQUIRE(next);
            CHECK(held(database) == 2);
        }
        CHECK(eventually([&] { return held(database) == 0; }));
        CHECK(locks.stats().acquired == 3);
        CHECK(other.stats().acquired == 2);
    }
}

TEST_CASE("free locks are taken and freed by one statement each, however many they are") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    interception network;
    client locks{network.wrap(database.source()), database.options()};
    const names wanted{"a", "b", "c", "d", "e", "f", "g", "h"};
    locks.acquire_all(wanted).release();  // makes the rows, and the session
    network.statements = 0;
    auto all = locks.acquire_all(wanted);
    CHECK(network.statements == 1);
    all.release();
    CHECK(network.statements == 2);
}

TEST_CASE("a waiter for several locks gets them when the last of them is released") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options()};
        client second{database.source(), database.options()};
        client waiter{database.source(), sleepy(database)};
        auto a = first.acquire("a");
        auto b = second.acquire("b");
        auto waiting = waits_for(waiter, {"a", "b", "c"});
        REQUIRE(eventually([&] { return entries(database) == 3; }));
        // None of them is taken before all are free, and no newcomer passes.
        CHECK_FALSE(first.try_acquire("c"));
        a.release();
        CHECK_FALSE(first.try_acquire("a"));
        CHECK(waiting.wait_for(50ms) == std::future_status::timeout);
        CHECK(held(database) == 1);
        b.release();
        auto all = waiting.get();
        REQUIRE(all);
        CHECK(all->held());
        CHECK(entries(database) == 0);
        CHECK(all->leases()[0].token() > a.token());
        CHECK(waiter.stats().queued == 1);
    }
}

ROWLOCK_SIMULATED_CASE(
    "waiters behind a request for several locks are served when it releases them", database) {
    client holder{database.source(), database.options()};
    client several{database.source(), sleepy(database)};
    client single{database.source(), sleepy(database)};
    auto b = holder.acquire("b");
    auto all = waits_for(several, {"a", "b"});
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    auto one = std::async(std::launch::async, [&] { return support::acquire_soon(single, "a"); });
    auto two = std::async(std::launch::async, [&] { return support::acquire_soon(single, "b"); });
    REQUIRE(eventually([&] { return entries(database) == 4; }));
    b.release();
    auto got = all.get();
    REQUIRE(got);
    CHECK(one.wait_for(20ms) == std::future_status::timeout);
    got->release();
    CHECK(one.get().token() > got->leases()[0].token());
    CHECK(two.get().token() > got->leases()[1].token());
}

ROWLOCK_SIMULATED_CASE(
    "names are refused that no call could serve, and locks that the thread holds", database) {
    client locks{database.source(), database.options()};
    const auto refused = [&](names wanted) {
        return kind_of([&] { static_cast<void>(locks.try_acquire_all(std::move(wanted))); });
    };
    CHECK(refused({}) == errc::invalid_options);
    CHECK(refused({"a", "b", "a"}) == errc::invalid_options);
    names many;
    for (int i = 0; i < 17; ++i) many.emplace_back("name " + std::to_string(i));
    CHECK(refused(many) == errc::invalid_options);
    many.pop_back();
    auto sixteen = locks.try_acquire_all(many);
    REQUIRE(sixteen);
    CHECK(sixteen->size() == 16);
    sixteen->release();
    CHECK(held(database) == 0);

    const auto one = locks.acquire("a");
    CHECK(refused({"a", "b"}) == errc::would_deadlock);
    CHECK(refused({"a"}) == errc::would_deadlock);
    // Another thread may release that lease; so may this one, before it asks.
    std::jthread{[&] { CHECK(refused({"a", "b"}) == errc{}); }}.join();
    CHECK(locks.acquire_all({"b", "c"}).held());
    auto single = locks.acquire_all({"d"});
    CHECK(single.size() == 1);
    CHECK(single.held());
    multi_lease none;
    CHECK_FALSE(none.held());
    CHECK(none.size() == 0);
    CHECK_NOTHROW(none.release());
}

ROWLOCK_SIMULATED_CASE(
    "a wait for several locks ends with its time limit or a stop, and leaves no entry", database) {
    client holder{database.source(), database.options()};
    client waiter{database.source(), database.options()};
    client behind{database.source(), sleepy(database)};
    const auto b = holder.acquire("b");
    SUBCASE("time") {
        CHECK_FALSE(waiter.try_acquire_all_for({"a", "b"}, 30ms));
    }
    SUBCASE("stop") {
        std::stop_source stop;
        auto waiting = std::async(std::launch::async, [&] {
            return waiter.acquire_all({"a", "b"}, stop.get_token());
        });
        const support::at_end stops{[&] { stop.request_stop(); }};
        REQUIRE(eventually([&] { return entries(database) == 2; }));
        // Behind the request, which goes: its session hears of it.
        auto one =
            std::async(std::launch::async, [&] { return support::acquire_soon(behind, "a"); });
        REQUIRE(eventually([&] { return entries(database) == 3; }));
        stop.request_stop();
        CHECK_FALSE(waiting.get());
        CHECK(one.get().held());
    }
    CHECK(eventually([&] { return entries(database) == 0; }));
    CHECK(waiter.stats().acquired == 0);
}

ROWLOCK_SIMULATED_CASE("barging takes several locks past those who wait, and waits in no queue",
                       database) {
    client locks{database.source(), database.options()};
    const support::protocol_connection hand{database};
    hand.open(session_id{1});
    hand.enqueue("a", session_id{1}, grant_id{11});
    CHECK_FALSE(locks.try_acquire_all({"a", "b"}));
    CHECK(locks.try_acquire_all({"a", "b"}, {.queueing = queueing::barging}));
    // The release serves the waiter; a barging one tries again and again.
    REQUIRE(eventually([&] { return hand.served("a", session_id{1}, grant_id{11}); }));
    auto waiting = std::async(std::launch::async, [&] {
        return locks.try_acquire_all_for({"a", "b"}, support::patience,
                                         {.queueing = queueing::barging});
    });
    CHECK(waiting.wait_for(50ms) == std::future_status::timeout);
    CHECK(entries(database) == 0);
    CHECK(hand.release("a", session_id{1}, grant_id{11}).freed);
    const auto all = waiting.get();
    REQUIRE(all);
    CHECK(all->held());
}

ROWLOCK_SIMULATED_CASE("after a lost reply all locks are held once, or none of them", database) {
    interception network;
    network.transactions = true;
    client locks{network.wrap(database.source()), database.options()};
    const auto lose_first = [&](std::string_view statement, bool before = false) {
        auto once = std::make_shared<std::atomic<bool>>(false);
        const auto hook = [=](std::string_view what) {
            if (what != statement || once->exchange(true)) return;
            if (before) interception::refuse_to_send();
            interception::lose_reply();
        };
        before ? network.before(hook) : network.after(hook);
        return once;
    };
    const std::string_view writes = database.speaks() == sql::dialect::postgresql ? "multi_take"
                                    : database.speaks() == sql::dialect::mysql    ? "transaction"
                                                                                  : "commit";
    locks.acquire_all({"a", "b"}).release();
    SUBCASE("of the attempt that took them") {
        const auto lost = lose_first(writes);
        const auto all = locks.acquire_all({"a", "b"});
        CHECK(*lost);
        CHECK(all.held());
    }
    SUBCASE("of one that was not sent") {
        const auto lost = lose_first(writes, true);
        const auto all = locks.acquire_all({"a", "b"});
        CHECK(*lost);
        CHECK(all.held());
    }
    SUBCASE("of the turn that came by waiting") {
        const support::protocol_connection hand{database};
        hand.open(session_id{1});
        REQUIRE(hand.try_acquire("b", session_id{1}, grant_id{12}));
        auto waiting = waits_for(locks, {"a", "b"});
        REQUIRE(eventually([&] { return entries(database) == 2; }));
        // On MySQL the rows are locked first, so it is no single text.
        const bool mysql = database.speaks() == sql::dialect::mysql;
        const auto lost = lose_first(mysql ? "commit" : writes);
        REQUIRE(hand.free("b", session_id{1}, grant_id{12}));
        REQUIRE(waiting.get());
        CHECK(*lost);
    }
    SUBCASE("of the entry in the queues") {
        const support::protocol_connection hand{database};
        hand.open(session_id{1});
        REQUIRE(hand.try_acquire("b", session_id{1}, grant_id{12}));
        const auto lost = lose_first("multi_enqueue");
        auto waiting = waits_for(locks, {"a", "b"});
        REQUIRE(eventually([&] { return lost->load(); }));
        // The entries whose outcome was unknown do not keep those of the next attempt waiting.
        REQUIRE(hand.free("b", session_id{1}, grant_id{12}));
        REQUIRE(waiting.get());
    }
    CHECK(eventually([&] { return entries(database) == 0; }));
    CHECK(eventually([&] { return held(database) == 0; }));
}

ROWLOCK_SIMULATED_CASE(
    "a request whose entry is gone, or was served alone, asks again and never has a part",
    database) {
    client locks{database.source(), database.options({.poll_interval = 20ms})};
    const support::protocol_connection hand{database};
    hand.open(session_id{1});
    REQUIRE(hand.try_acquire("b", session_id{1}, grant_id{12}));
    auto waiting = waits_for(locks, {"a", "b"});
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    const auto first = database.number("select max(grant_id) from rowlock_ticket");
    SUBCASE("one is deleted") {
        database.run("delete from rowlock_ticket where name = 'a'");
    }
    SUBCASE("all are deleted") {
        database.run("delete from rowlock_ticket");
    }
    SUBCASE("one of the leases is granted alone") {
        const auto row =
            database.run("select session, grant_id from rowlock_ticket where name = 'a'");
        database.run(
            "update rowlock_lock set token = token + 1, session = " + std::string{row.text(0, 0)} +
            ", grant_id = " + std::string{row.text(0, 1)} + " where name = 'a'");
        database.run("delete from rowlock_ticket where name = 'a'");
    }
    REQUIRE(eventually([&] {
        return entries(database) == 2 &&
               database.number("select max(grant_id) from rowlock_ticket") != first;
    }));
    // What was granted alone is given back.
    CHECK(eventually([&] { return held(database) == 1; }));
    CHECK(waiting.wait_for(0ms) == std::future_status::timeout);
    REQUIRE(hand.free("b", session_id{1}, grant_id{12}));
    const auto all = waiting.get();
    REQUIRE(all);
    CHECK(all->held());
    CHECK(held(database) == 2);
}

ROWLOCK_SIMULATED_CASE("a request for several locks outlives the end of its session", database) {
    const support::protocol_connection hand{database};
    hand.open(session_id{1});
    REQUIRE(hand.try_acquire("b", session_id{1}, grant_id{12}));
    client locks{database.source(), database.watchful()};
    auto waiting = waits_for(locks, {"a", "b"});
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    const auto old = database.number("select max(session) from rowlock_ticket");
    hand.end(session_id{old});
    REQUIRE(eventually([&] {
        return database.number("select count(*) from rowlock_ticket where session <> " +
                               std::to_string(old)) == 2;
    }));
    REQUIRE(hand.free("b", session_id{1}, grant_id{12}));
    CHECK(waiting.get());
}

ROWLOCK_SIMULATED_CASE(
    "the loss of one of several locks is the loss of all, and the others are released", database) {
    client locks{database.source(), database.watchful()};
    client other{database.source(), database.options()};
    auto all = locks.acquire_all({"a", "b"});
    REQUIRE(other.force_release("b"));
    const auto lost = all.lost();
    REQUIRE(eventually([&] { return lost.stop_requested(); }));
    CHECK_FALSE(all.held());
    CHECK(all["a"].held());
    CHECK_FALSE(all["b"].held());
    CHECK(kind_of([&] { all.release(); }) == errc::lock_lost);
    CHECK(held(database) == 0);
    // Taken apart, each lease is released by itself.
    auto apart = locks.acquire_all({"a", "b"}).split();
    REQUIRE(apart.size() == 2);
    apart.front().release();
    CHECK(apart.back().held());
    CHECK(held(database) == 1);
}

TEST_CASE("a transaction commits only while all of several locks are held") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        client other{database.source(), database.options()};
        auto all = locks.acquire_all({"a", "b"});
        const auto db = database.source().connect(soon());
        const auto fenced = [&] {
            db->query("begin", soon());
            const auto failed = kind_of([&] { fence(*db, all); });
            db->query("rollback", soon());
            return failed;
        };
        CHECK(fenced() == errc{});
        REQUIRE(other.force_release("b"));
        CHECK(fenced() == errc::lock_lost);
        CHECK(kind_of([&] { fence(*db, multi_lease{}); }) == errc::not_owner);
    }
}

TEST_CASE(
    "threads that ask for the same locks in opposite orders neither wait forever nor overlap") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr int many = 6;
        constexpr int turns = 4;
        std::vector<std::unique_ptr<client>> clients;
        for (int i = 0; i < 2; ++i) {
            clients.push_back(std::make_unique<client>(database.source(), database.options()));
        }
        std::array<std::atomic<int>, 3> inside{};
        std::atomic<int> overlaps{0};
        std::atomic<int> done{0};
        {
            std::vector<std::jthread> threads;
            for (int i = 0; i < many; ++i) {
                threads.emplace_back([&, i] {
                    const std::array<int, 2> wanted{i % 3, (i + 1 + i / 3) % 3};
                    for (int turn = 0; turn < turns; ++turn) {
                        names all;
                        for (const int each : wanted) all.emplace_back("n" + std::to_string(each));
                        const auto got = clients[static_cast<std::size_t>(i % 2)]->acquire_all(all);
                        for (const int each : wanted) {
                            if (inside[static_cast<std::size_t>(each)]++ != 0) ++overlaps;
                        }
                        std::this_thread::yield();
                        for (const int each : wanted) --inside[static_cast<std::size_t>(each)];
                        ++done;
                    }
                });
            }
        }
        CHECK(done == many * turns);
        CHECK(overlaps == 0);
        CHECK(eventually([&] { return entries(database) == 0; }));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a thread that holds a lock and waits behind a request for several gives way", database) {
    client several{database.source(), database.options()};
    client nested{database.source(), database.options()};
    auto b = nested.acquire("b");
    auto all = waits_for(several, {"a", "b"});
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    // "a" is free, but waited for by a request that waits for us.
    CHECK(kind_of([&] { static_cast<void>(nested.acquire("a")); }) == errc::deadlock);
    b.release();
    CHECK(all.get());
}

ROWLOCK_SIMULATED_CASE("of two threads that hold a lock each and ask for several, one gives way",
                       database) {
    client one{database.source(), database.options()};
    client two{database.source(), database.options()};
    std::atomic<int> deadlocks{0};
    std::atomic<int> granted{0};
    std::barrier both{2};
    const auto work = [&](client& locks, const char* own, const char* other) {
        auto first = std::make_optional(locks.acquire(own));
        both.arrive_and_wait();
        try {
            const auto rest = locks.acquire_all({other, "c"});
            ++granted;
        } catch (const error& failure) {
            if (failure.kind() != errc::deadlock) throw;
            ++deadlocks;
        }
        first.reset();
    };
    {
        std::jthread a{[&] { work(one, "a", "b"); }};
        std::jthread b{[&] { work(two, "b", "a"); }};
    }
    CHECK(deadlocks == 1);
    CHECK(granted == 1);
    CHECK(eventually([&] { return entries(database) == 0; }));
}

ROWLOCK_SIMULATED_CASE(
    "a destroyed client fails its waiters for several locks, and leaves no entry", database) {
    client holder{database.source(), database.options()};
    const auto b = holder.acquire("b");
    auto locks = std::make_unique<client>(database.source(), database.options());
    auto waiting = std::async(std::launch::async, [&at = *locks] {
        return kind_of([&] { static_cast<void>(at.acquire_all({"a", "b"})); });
    });
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    locks.reset();
    CHECK(waiting.get() == errc::lock_lost);
    CHECK(entries(database) == 0);
    CHECK(holder.try_acquire("a"));
}

ROWLOCK_SIMULATED_CASE(
    "locks that were granted to a wait that an outage ended belong to no one twice", database) {
    interception network;
    network.transactions = true;
    client_options options = database.options({.ttl = 1min, .heartbeat = 1300ms});
    options.retry.attempts = 1;  // the outage outlasts the repetitions
    client locks{network.wrap(database.source()), options};
    client other{database.source(), database.options()};
    const support::protocol_connection hand{database};
    hand.open(session_id{1});
    REQUIRE(hand.try_acquire("b", session_id{1}, grant_id{12}));
    auto waiting = waits_for(locks, {"a", "b"});
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    const std::string_view writes =
        database.speaks() == sql::dialect::postgresql ? "multi_take" : "commit";
    std::atomic<int> lost{0};
    network.after([&](std::string_view what) {
        if (what == writes && lost++ == 0) interception::lose_reply();
    });
    // The entries of the wait that has ended are deleted late, when its thread has asked again.
    std::atomic<bool> delayed{false};
    network.before([&](std::string_view what) {
        if ((what == "cancel" || what == "tickets") && !delayed.exchange(true)) {
            std::this_thread::sleep_for(1500ms);
        }
    });
    REQUIRE(hand.free("b", session_id{1}, grant_id{12}));
    auto all = waiting.get();
    REQUIRE(all);
    CHECK(lost > 0);
    CHECK(delayed);
    // Several heartbeats later the tables still say what the client believes.
    for (int i = 0; i < 20; ++i) {
        REQUIRE(all->held());
        for (const auto& each : all->leases()) {
            const auto seen = other.inspect(each.name());
            REQUIRE(seen);
            REQUIRE(seen->holder);
            CHECK(seen->holder->grant_id == each.grant_id());
            CHECK(seen->token == each.token());
        }
        std::this_thread::sleep_for(50ms);
    }
}

ROWLOCK_SIMULATED_CASE(
    "grants of several locks that come too late for their own deadline are given back", database) {
    interception network;
    network.transactions = true;
    client locks{network.wrap(database.source()), database.options()};
    const support::protocol_connection hand{database};
    hand.open(session_id{1});
    REQUIRE(hand.try_acquire("b", session_id{1}, grant_id{12}));
    auto waiting = std::async(std::launch::async, [&] {
        return kind_of([&] {
            static_cast<void>(locks.acquire_all({"a", "b"}, {.max_duration = 10ms}));
        });
    });
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    const std::string_view writes =
        database.speaks() == sql::dialect::postgresql ? "multi_take" : "commit";
    network.after([&](std::string_view what) {
        if (what == writes || what == "transaction") std::this_thread::sleep_for(30ms);
    });
    REQUIRE(hand.free("b", session_id{1}, grant_id{12}));
    CHECK(waiting.get() == errc::timed_out);
    CHECK(eventually([&] { return entries(database) == 0; }));
}

TEST_CASE(
    "a stop ends a wait for several locks, though another transaction has a free row locked") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options({.statement_timeout = 20s})};
        locks.acquire_all({"a", "b"}).release();
        const auto other = database.source().connect(soon());
        other->query("begin", soon());
        other->query("select token from " + database.prefix() + "lock where name = 'b' for update",
                     soon());
        std::stop_source stop;
        auto waiting = std::async(std::launch::async, [&] {
            return locks.acquire_all({"a", "b"}, stop.get_token());
        });
        const support::at_end stops{[&] { stop.request_stop(); }};
        // On MySQL the first attempt waits for the row, as for one lease.
        if (database.speaks() == sql::dialect::postgresql) {
            REQUIRE(eventually([&] { return entries(database) == 2; }));
            // It has tried several times by then.
            CHECK(waiting.wait_for(500ms) == std::future_status::timeout);
            const auto stopped = std::chrono::steady_clock::now();
            stop.request_stop();
            CHECK_FALSE(waiting.get());
            // A statement that waits for the row would take its whole time.
            CHECK(std::chrono::steady_clock::now() - stopped < 10s);
        }
        other->query("rollback", soon());
        stop.request_stop();
        if (waiting.valid()) static_cast<void>(waiting.get());
        CHECK(eventually([&] { return entries(database) == 0; }));
    }
}

TEST_CASE("tokens of several locks are those of their names, whatever the database's collation") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    auto& admin = database.admin();
    const std::string name = database.prefix() + "icu";
    try {
        admin.query("create database " + name +
                        " template template0 encoding 'UTF8' locale_provider icu icu_locale 'en'",
                    soon());
    } catch (const error&) {
        MESSAGE("this server has no ICU collations");
        return;
    }
    {
        const std::string url = database.url();
        const auto from = url.rfind('/') + 1;
        const auto to = std::min(url.find('?', from), url.size());
        const auto source = open(url.substr(0, from) + name + url.substr(to));
        migrate(source);
        client locks{source};
        for (int i = 0; i < 5; ++i) locks.acquire("Z").release();
        const auto check = [&](const multi_lease& all) {
            CHECK(all.leases()[0].name() == "Z");
            for (const auto& each : all.leases()) {
                CHECK(locks.inspect(each.name())->token == each.token());
            }
        };
        check(locks.acquire_all({"a", "Z"}));
        auto held = locks.acquire("Z");
        auto waiting = waits_for(locks, {"a", "Z"});
        REQUIRE(eventually([&] { return locks.waiters("a").size() == 1; }));
        held.release();
        check(*waiting.get());
    }
    admin.query("drop database " + name, soon());
}
