// shared_mutexes as programs use them: readers and writers over several clients, upgrades and
// downgrades, and what becomes of a hold when its client vanishes or a reply is lost.
// shows: promise-13

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/table_names.hpp"
#include "support/at_end.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include "support/waits.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
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

constexpr auto shared = lock_mode::shared;
constexpr auto upgradeable = lock_mode::upgradeable;
constexpr auto exclusive = lock_mode::exclusive;

constexpr auto end_of_the_upgrade = "update rowlock_lock set grant_id = null where session is null";

mode_lease acquire_soon(shared_mutex& from, lock_mode mode) {
    auto got = from.try_acquire_for(mode, patience);
    if (!got) throw std::runtime_error{"the lock did not come"};
    return std::move(*got);
}

std::future<mode_lease> waits(shared_mutex& from, lock_mode mode) {
    return std::async(std::launch::async, [&from, mode] { return acquire_soon(from, mode); });
}

/// Waits until that many entries are in the queues.
bool entries(lock_database& database, std::int64_t count) {
    return eventually(
        [&] { return database.number("select count(*) from rowlock_ticket") == count; });
}

bool is_free(shared_mutex& lock) {
    return eventually([&] {
        const auto seen = lock.inspect();
        return !seen || (seen->shared == 0 && !seen->upgradeable && !seen->exclusive);
    });
}

/// Whether every counter is the sum of its holds.
bool counts(lock_database& database) {
    return database.number(
               "select count(*) from rowlock_lock p where p.used <> (select "
               "coalesce(sum(s.weight), 0) from rowlock_hold s where s.name = p.name)") == 0;
}

/// Calls `work` on another thread, and returns what that does.
template <typename Work>
auto elsewhere(Work work) {
    return std::async(std::launch::async, std::move(work)).get();
}

/// Two clients with an object of one shared_mutex each.
struct two_clients {
    explicit two_clients(lock_database& database, client_options second = {})
        : first{database.source(), database.options()},
          other{database.source(), database.options(std::move(second))} {}

    client first, other;
    shared_mutex here{first, "page"};
    shared_mutex there{other, "page"};
};

}  // namespace

TEST_CASE("readers share the lock, a writer has it alone, over clients") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        two_clients two{database};
        CHECK_FALSE(two.here.inspect().has_value());
        CHECK_FALSE(two.here.exists());
        {
            const std::shared_lock reads{two.here};
            CHECK(two.there.exists());
            CHECK(two.here.held());
            CHECK(two.here.mode() == shared);
            CHECK(elsewhere([&] {
                const std::shared_lock also{two.there, std::try_to_lock};
                return also.owns_lock();
            }));
            CHECK_FALSE(two.there.try_lock());
            CHECK_FALSE(two.there.try_lock_for(50ms));
            CHECK(two.here.inspect().value().shared == 1);
        }
        CHECK_FALSE(two.here.held());
        CHECK_FALSE(two.here.mode().has_value());
        {
            const std::unique_lock writes{two.there};
            CHECK(two.there.mode() == exclusive);
            CHECK_FALSE(two.here.try_lock_shared());
            CHECK_FALSE(two.here.try_lock_upgrade());
            CHECK_FALSE(two.here.try_lock());
            CHECK(two.here.inspect().value().exclusive);
            const auto holders = two.here.holders();
            REQUIRE(holders.size() == 1);
            CHECK(holders[0].mode == exclusive);
            CHECK(holders[0].token == two.there.token());
        }
        {
            shared_mutex beside{two.first, "index"};
            const std::scoped_lock both{two.here, beside};
            CHECK(list_shared_mutexes(two.other).empty());
            CHECK(two.other.list().size() == 2);  // they are held as a whole
        }
        {
            const std::shared_lock reads{two.here};
            REQUIRE(list_shared_mutexes(two.other, "pa").size() == 1);
            CHECK(list_shared_mutexes(two.other, "in").empty());
        }
        CHECK(list_semaphores(two.other).empty());
        CHECK(is_free(two.here));
        CHECK(counts(database));
    }
}

TEST_CASE("the exclusive mode costs the round trips of a lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        interception counted;
        client locks{counted.wrap(database.source()), database.options()};
        shared_mutex page{locks, "page"};
        page.acquire(exclusive).release();
        const auto cost = [&](auto acquire) {
            counted.statements = 0;
            auto held = acquire();
            const int taken = counted.statements;
            held.release();
            return std::pair{taken, counted.statements - taken};
        };
        const auto lease = cost([&] { return locks.acquire("page"); });
        CHECK(cost([&] { return page.acquire(exclusive); }) == lease);
        CHECK(cost([&] { return page.acquire(shared); }).first > lease.first);  // the control
    }
}

ROWLOCK_SIMULATED_CASE(
    "a hold is a lease: it ends with its object, and a second release does nothing", database) {
    two_clients two{database};
    auto first = two.here.acquire(shared, {.note = "a report"});
    CHECK(first.held());
    CHECK(first.name() == "page");
    CHECK(first.mode() == shared);
    CHECK(first.remaining() > 0ms);
    CHECK(two.there.holders().at(0).who.note == "a report");
    auto second = two.there.try_acquire(upgradeable);
    REQUIRE(second.has_value());
    CHECK(second->token() > first.token());
    first.release();
    CHECK_FALSE(first.held());
    first.release();
    { const auto moved = std::move(*second); }
    CHECK(is_free(two.here));
    CHECK(kind_of([&] { first.upgrade(); }) == errc::not_owner);
    mode_lease none;
    CHECK_FALSE(none.held());
    CHECK(none.name().empty());
    CHECK(kind_of([&] { none.downgrade(shared); }) == errc::not_owner);
    none.release();
    std::stop_source stop;
    stop.request_stop();
    const auto held = two.here.acquire(exclusive);
    CHECK_FALSE(two.there.acquire(shared, stop.get_token()).has_value());
    CHECK(counts(database));
}

TEST_CASE("a waiting writer is woken by the last reader, and is not overtaken by new ones") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        two_clients two{database, {.poll_interval = 1min}};
        auto one = two.here.acquire(shared);
        auto second = two.here.acquire(shared);
        auto writes = waits(two.there, exclusive);
        REQUIRE(entries(database, 1));
        CHECK_FALSE(two.here.try_acquire(shared).has_value());
        one.release();
        CHECK(writes.wait_for(200ms) == std::future_status::timeout);
        second.release();
        auto written = writes.get();
        CHECK(written.held());

        // Readers that stand in line enter together.
        std::vector<std::future<mode_lease>> reads;
        reads.reserve(5);
        for (int i = 0; i < 5; ++i) reads.push_back(waits(two.here, shared));
        REQUIRE(entries(database, 5));
        written.release();
        std::vector<mode_lease> all;
        for (auto& each : reads) all.push_back(each.get());
        CHECK(two.there.inspect().value().shared == 5);
        CHECK(counts(database));
    }
}

TEST_CASE("an upgrade waits for the readers alone, and the writers in line wait for it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        two_clients two{database};
        auto held = two.here.acquire(upgradeable);
        auto reads = two.there.acquire(shared);
        auto writes = waits(two.there, exclusive);
        REQUIRE(entries(database, 1));
        CHECK_FALSE(held.try_upgrade());
        CHECK(held.mode() == upgradeable);
        const auto before = held.token();
        auto upgraded = std::async(std::launch::async, [&] { held.upgrade(); });
        REQUIRE(entries(database, 2));
        CHECK_FALSE(two.there.try_acquire(shared).has_value());
        reads.release();
        upgraded.get();
        CHECK(held.mode() == exclusive);
        CHECK(held.token() > before);
        CHECK(two.there.inspect().value().exclusive);
        const auto holders = two.there.holders();
        REQUIRE(holders.size() == 1);
        CHECK(holders[0].mode == exclusive);
        CHECK(holders[0].token == held.token());
        held.upgrade();  // it is exclusive
        CHECK(held.try_upgrade());
        CHECK(writes.wait_for(0s) == std::future_status::timeout);

        held.downgrade(upgradeable);
        CHECK(held.mode() == upgradeable);
        CHECK(writes.wait_for(100ms) == std::future_status::timeout);
        CHECK(held.try_upgrade());  // before the writer in line
        held.release();
        CHECK(writes.get().held());
        CHECK(is_free(two.here));
        CHECK(counts(database));
    }
}

ROWLOCK_SIMULATED_CASE("an upgrade that runs out of time, or is stopped, leaves the hold as it was",
                       database) {
    two_clients two{database};
    auto held = two.here.acquire(upgradeable);
    const auto reads = two.there.acquire(shared);
    CHECK_FALSE(held.try_upgrade_for(100ms));
    CHECK(held.held());
    CHECK(held.mode() == upgradeable);
    std::stop_source stop;
    auto stopped = std::async(std::launch::async, [&] { return held.upgrade(stop.get_token()); });
    const support::at_end stops{[&] { stop.request_stop(); }};
    REQUIRE(entries(database, 1));
    auto waiting = waits(two.there, shared);
    REQUIRE(entries(database, 2));
    stop.request_stop();
    CHECK_FALSE(stopped.get());
    CHECK(waiting.get().held());  // the entry of the upgrade stood before it
    CHECK(held.held());
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE(
    "every timed call of a shared_mutex and its holds gets a free mode, and ends in time",
    database) {
    using clock = std::chrono::steady_clock;
    two_clients two{database};
    REQUIRE(two.here.try_lock_upgrade_for(10s));
    REQUIRE(two.there.try_lock_shared_until(clock::now() + 10s));
    CHECK_FALSE(two.here.try_upgrade_for(20ms));
    two.there.unlock_shared();
    REQUIRE(two.here.try_upgrade_for(10s));
    CHECK_FALSE(two.there.try_lock_for(20ms));
    CHECK_FALSE(two.there.try_lock_until(clock::now() + 20ms));
    CHECK_FALSE(two.there.try_lock_shared_for(20ms));
    CHECK_FALSE(two.there.try_lock_shared_until(clock::now() + 20ms));
    CHECK_FALSE(two.there.try_lock_upgrade_for(20ms));
    CHECK_FALSE(two.there.try_lock_upgrade_until(clock::now() + 20ms));
    two.here.unlock();
    REQUIRE(two.there.try_lock_upgrade_until(clock::now() + 10s));
    two.there.unlock_upgrade();
    auto held = two.here.acquire(upgradeable);
    {
        const auto reads = two.there.acquire(shared);
        CHECK_FALSE(held.try_upgrade_until(clock::now() + 20ms));
    }
    CHECK(held.try_upgrade_until(clock::now() + 10s));
    CHECK(counts(database));
}

TEST_CASE("two readers cannot wait for each other's end: an upgrade of a shared hold is refused") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        two_clients two{database};
        auto one = two.here.acquire(shared);
        auto second = two.there.acquire(shared);
        CHECK(kind_of([&] { one.upgrade(); }) == errc::would_deadlock);
        CHECK(kind_of([&] { (void)one.try_upgrade_for(1s); }) == errc::would_deadlock);
        CHECK_FALSE(one.try_upgrade());
        CHECK_FALSE(second.try_upgrade());
        second.release();
        CHECK(one.try_upgrade());
        CHECK(one.mode() == exclusive);
        CHECK_FALSE(two.there.try_acquire(shared).has_value());
        // Through all modes, and back.
        one.downgrade(upgradeable);
        CHECK(two.there.try_acquire(shared).has_value());
        CHECK_FALSE(two.there.try_acquire(upgradeable).has_value());
        CHECK(eventually([&] { return one.try_upgrade(); }));
        one.downgrade(shared);
        CHECK(two.there.try_acquire(upgradeable).has_value());
        CHECK(kind_of([&] { one.downgrade(exclusive); }) == errc::invalid_options);
        one.release();
        CHECK(is_free(two.here));
        CHECK(counts(database));
    }
}

TEST_CASE("a downgrade lets readers in, and no writer between") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        two_clients two{database, {.poll_interval = 1min}};
        auto held = two.here.acquire(exclusive);
        auto reads = waits(two.there, shared);
        REQUIRE(entries(database, 1));
        auto writes = waits(two.there, exclusive);
        REQUIRE(entries(database, 2));
        held.downgrade(shared);
        CHECK(held.mode() == shared);
        auto read = reads.get();
        CHECK(held.held());
        CHECK(writes.wait_for(200ms) == std::future_status::timeout);
        read.release();
        held.release();
        CHECK(writes.get().held());
        CHECK(counts(database));
    }
}

ROWLOCK_SIMULATED_CASE("a thread locks it once, and shared as often as it likes", database) {
    two_clients two{database};
    shared_mutex again{two.first, "page"};  // the same lock for this thread
    two.here.lock_shared();
    again.lock_shared();
    CHECK(two.there.inspect().value().shared == 1);
    CHECK(kind_of([&] { two.here.lock(); }) == errc::would_deadlock);
    CHECK(kind_of([&] { again.lock_upgrade(); }) == errc::would_deadlock);
    CHECK_FALSE(two.here.try_lock());
    // Also while a writer waits: it would wait for this thread, and this thread for it.
    auto writes = waits(two.there, exclusive);
    REQUIRE(entries(database, 1));
    two.here.lock_shared();
    two.here.unlock_shared();
    again.unlock_shared();
    CHECK(two.here.held());
    two.here.unlock_shared();
    CHECK_FALSE(again.held());
    writes.get().release();

    two.here.lock();
    CHECK(kind_of([&] { two.here.lock(); }) == errc::would_deadlock);
    two.here.lock_shared();
    two.here.unlock();  // a downgrade
    CHECK(two.here.mode() == shared);
    CHECK(two.there.try_lock_shared());
    two.there.unlock_shared();
    two.here.unlock_shared();

    two.here.lock_upgrade();
    two.here.upgrade();
    CHECK(two.here.mode() == exclusive);
    two.here.downgrade(upgradeable);
    CHECK(two.here.try_upgrade());
    two.here.unlock();
    CHECK_FALSE(two.here.held());
    two.here.lock_shared();
    CHECK(two.here.try_upgrade());
    two.here.downgrade(shared);
    two.here.unlock_shared();
    CHECK(kind_of([&] { two.here.upgrade(); }) == errc::not_owner);
    CHECK(kind_of([&] { two.here.downgrade(shared); }) == errc::not_owner);
    CHECK(is_free(two.here));
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE(
    "threads of a client that read at the same time share a grant while that is young", database) {
    client locks{database.source(), database.options()};
    client others{database.source(), database.options()};
    shared_mutex there{others, "page"};
    const auto readers = [&] { return there.inspect().value().shared; };
    {
        shared_mutex here{locks, "page", {.reader_linger = 1min}};
        here.lock_shared();
        elsewhere([&] {
            CHECK(here.try_lock_shared());
            CHECK(here.held());
            CHECK(readers() == 1);
            // It has not the only permit of its client.
            CHECK_FALSE(here.try_upgrade());
            CHECK(kind_of([&] { here.upgrade(); }) == errc::would_deadlock);
            CHECK(here.held());
            here.unlock_shared();
        });
        CHECK(here.held());
        CHECK(readers() == 1);
        CHECK(here.try_upgrade());  // alone again
        CHECK_FALSE(elsewhere([&] { return here.try_lock_shared(); }));
        here.unlock();
        CHECK(is_free(there));

        // The threads that come while one of them asks wait for its grant.
        auto writes = there.acquire(exclusive);
        std::atomic<int> inside{0};
        std::vector<std::future<void>> all;
        for (int i = 0; i < 5; ++i) {
            all.push_back(std::async(std::launch::async, [&] {
                const std::shared_lock reads{here};
                ++inside;
                CHECK(eventually([&] { return inside == 5; }));
                CHECK(readers() == 1);
            }));
        }
        REQUIRE(entries(database, 1));
        writes.release();
        for (auto& each : all) each.get();
        CHECK(is_free(there));
    }
    for (const auto linger : {0ms, 1ms}) {
        shared_mutex here{locks, "page", {.reader_linger = linger}};
        const std::shared_lock reads{here};
        std::this_thread::sleep_for(2 * linger);  // it is not young any more
        elsewhere([&] {
            const std::shared_lock also{here};
            CHECK(readers() == 2);
        });
        // So a waiting writer is not overtaken by threads of the readers' client.
        auto writes = waits(there, exclusive);
        REQUIRE(entries(database, 1));
        CHECK_FALSE(elsewhere([&] { return here.try_lock_shared(); }));
        here.unlock_shared();
        writes.get().release();
        here.lock_shared();
    }
    CHECK(kind_of([&] {
              const shared_mutex page{locks, "page", {.reader_linger = -1ms}};
          }) == errc::invalid_options);
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE("a grant that threads share is lost to all of them", database) {
    client locks{database.source(), database.watchful()};
    shared_mutex here{locks, "page", {.reader_linger = 1min}};
    const std::shared_lock reads{here};
    std::promise<void> joined;
    auto other = std::async(std::launch::async, [&] {
        const std::shared_lock also{here};
        joined.set_value();
        return eventually([&] { return !here.held() && here.lost().stop_requested(); });
    });
    REQUIRE(joined.get_future().wait_for(patience) == std::future_status::ready);
    database.run("delete from rowlock_hold");
    CHECK(eventually([&] { return !here.held(); }));
    CHECK(other.get());
    // No thread joins what is lost.
    (void)reap(database.source());
    CHECK(elsewhere([&] {
        const std::shared_lock later{here};
        return here.held();
    }));
}

TEST_CASE("an unlock of what the thread has not locked is an event, and changes nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite) {
        support::event_log log;
        client locks{database.source(), database.options({.on_event = log.callback()})};
        shared_mutex page{locks, "page"};
        page.unlock();
        page.lock_shared();
        page.unlock();
        page.unlock_upgrade();
        CHECK(page.held());
        page.unlock_shared();
        page.unlock_shared();
        CHECK(eventually(
            [&] { return log.count(event_kind::unlock_failed, loss_reason::none) == 4; }));
    }
}

ROWLOCK_SIMULATED_CASE(
    "what a client that vanished holds comes back, and not before it knows of the loss", database) {
    for (const auto mode : {shared, upgradeable, exclusive}) {
        CAPTURE(to_string(mode));
        interception network;
        client cut_off{network.wrap(database.source()),
                       database.options({.ttl = 1s, .poll_interval = 100ms})};
        client others{database.source(), database.options({.poll_interval = 100ms})};
        shared_mutex here{cut_off, "page"};
        shared_mutex there{others, "page"};
        auto held = here.acquire(mode);
        auto waiting = std::async(std::launch::async, [&] {
            auto got = acquire_soon(there, exclusive);
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
        CHECK(kind_of([&] { held.downgrade(shared); }) == errc::lock_lost);
        network.before({});
        CHECK(counts(database));
        CHECK(is_free(there));
    }
}

ROWLOCK_SIMULATED_CASE("an upgrade whose hold is lost meanwhile fails, and leaves nothing behind",
                       database) {
    two_clients two{database};
    client locks{database.source(), database.watchful()};
    shared_mutex here{locks, "page"};
    const auto reads = two.there.acquire(shared);
    auto held = here.acquire(upgradeable);
    auto upgrades =
        std::async(std::launch::async, [&] { return kind_of([&] { held.upgrade(); }); });
    REQUIRE(entries(database, 1));
    database.run("update rowlock_session set ended = " +
                 std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                 " where id = (select session from rowlock_hold where weight > 1)");
    CHECK(upgrades.get() == errc::lock_lost);
    CHECK_FALSE(held.held());
    CHECK(kind_of([&] { held.release(); }) == errc::lock_lost);
    CHECK(eventually([&] { return two.there.try_acquire(upgradeable).has_value(); }));
}

ROWLOCK_SIMULATED_CASE("lost() of an upgraded hold tells that it or its upgrade was taken by hand",
                       database) {
    for (const std::string change : {"delete from rowlock_hold", end_of_the_upgrade}) {
        CAPTURE(change);
        client locks{database.source(), database.watchful()};
        shared_mutex page{locks, "page"};
        auto held = page.acquire(upgradeable);
        held.upgrade();
        const auto lost = held.lost();
        CHECK(held.held());
        database.run(change);
        CHECK(eventually([&] { return lost.stop_requested(); }));
        CHECK_FALSE(held.held());
        CHECK(kind_of([&] { held.release(); }) == errc::lock_lost);
        (void)reap(database.source());
        CHECK(counts(database));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a hold that lost its upgrade is lost for good, and no upgrade of it succeeds", database) {
    client locks{database.source(), database.watchful()};
    shared_mutex page{locks, "page"};
    auto held = page.acquire(upgradeable);
    held.upgrade();
    database.run(end_of_the_upgrade);
    CHECK(eventually([&] { return held.lost().stop_requested(); }));
    CHECK(kind_of([&] { held.downgrade(upgradeable); }) == errc::lock_lost);
    CHECK(held.mode() == exclusive);
    CHECK_FALSE(held.held());
    CHECK(kind_of([&] { held.upgrade(); }) == errc::lock_lost);
    CHECK(kind_of([&] { held.release(); }) == errc::lock_lost);
}

ROWLOCK_SIMULATED_CASE("a downgrade that finds the upgrade gone is a loss of the whole hold",
                       database) {
    client locks{database.source(), database.options({.ttl = 1min})};
    shared_mutex page{locks, "page"};
    auto held = page.acquire(upgradeable);
    held.upgrade();
    database.run(end_of_the_upgrade);
    CHECK(kind_of([&] { held.downgrade(upgradeable); }) == errc::lock_lost);
    CHECK_FALSE(held.held());
    CHECK(eventually([&] { return held.lost().stop_requested(); }));
    CHECK(kind_of([&] { held.upgrade(); }) == errc::lock_lost);
}

ROWLOCK_SIMULATED_CASE("an upgrade, or its end, whose reply is lost is found again, or given up",
                       database) {
    interception network;
    client_options options = database.watchful();
    bool finds = false;
    SUBCASE("found again") {
        finds = true;
    }
    SUBCASE("given up") {
        options.retry.attempts = 1;
    }
    client locks{network.wrap(database.source()), options};
    client others{database.source(), database.options()};
    shared_mutex here{locks, "page"};
    shared_mutex there{others, "page"};
    const auto lose = [&](std::string_view statement) {
        network.after([&network, statement = std::string{statement}](std::string_view what) {
            if (what != statement) return;
            network.after({});
            interception::lose_reply();
        });
    };
    for (const auto from : {upgradeable, shared}) {
        CAPTURE(to_string(from));
        auto held = acquire_soon(here, from);
        lose("upgrade_lock");
        CHECK(kind_of([&] { (void)held.try_upgrade(); }) ==
              (finds ? errc{} : errc::outcome_unknown));
        CHECK(held.mode() == (finds ? exclusive : from));
        if (!finds) {
            CHECK(eventually([&] { return there.try_acquire(shared).has_value(); }));
            REQUIRE(eventually([&] { return held.try_upgrade(); }));
        }
        CHECK_FALSE(there.try_acquire(shared).has_value());
        lose("end_upgrade");
        CHECK(kind_of([&] { held.downgrade(upgradeable); }) ==
              (finds ? errc{} : errc::outcome_unknown));
        // Of what is not known to be more, no more is believed.
        CHECK(held.mode() == (finds ? upgradeable : from));
        CHECK(eventually([&] { return there.try_acquire(shared).has_value(); }));
        if (!finds) {
            // It is told what is believed: no more stays taken.
            held.downgrade(shared);
            CHECK(there.try_acquire(upgradeable).has_value());
            REQUIRE(eventually([&] { return held.try_upgrade(); }));
            held.downgrade(upgradeable);
        }
        REQUIRE(eventually([&] { return held.try_upgrade(); }));
        // After an unknown outcome the heartbeat compares what the session has with what is known.
        const auto begin = locks.stats().heartbeats;
        REQUIRE(eventually([&] { return locks.stats().heartbeats > begin + 12; }));
        CHECK(held.held());
        CHECK_FALSE(there.try_acquire(shared).has_value());
        held.release();
        CHECK(is_free(there));
        CHECK(database.number("select count(*) from rowlock_lock where grant_id is not null") == 0);
        CHECK(counts(database));
    }
}

// A waiter sees that a file of SQLite has changed.
TEST_CASE("a waiter is served although the reply to a downgrade was lost") {
    ROWLOCK_FOR_A_CLIENT(database) {
        for (const bool upgraded : {true, false}) {
            for (const bool repeats : {true, false}) {
                CAPTURE(upgraded);
                CAPTURE(repeats);
                interception network;
                client_options options = database.options({.ttl = 2min, .heartbeat = 1s});
                if (!repeats) options.retry.attempts = 1;
                client ours{network.wrap(database.source()), options};
                client theirs{database.source(),
                              database.options({.ttl = 2min, .poll_interval = 1min})};
                shared_mutex page{ours, "page"};
                auto held = page.acquire(upgradeable);
                if (upgraded) held.upgrade();
                const auto wanted = upgraded ? shared : upgradeable;
                auto next = std::async(std::launch::async, [&] {
                    return shared_mutex{theirs, "page"}.try_acquire_for(wanted, 110s).has_value();
                });
                REQUIRE(eventually(
                    [&] { return database.number("select count(*) from rowlock_ticket") == 1; }));
                REQUIRE(eventually([&] { return theirs.stats().polls > 0; }));
                std::atomic<bool> lost{false};
                network.lose_commit(
                    [&](std::string_view what) {
                        return upgraded ? what == "end_upgrade" : what.starts_with("shrink_permit");
                    },
                    database.speaks() != sql::dialect::postgresql, lost);
                const auto freed = std::chrono::steady_clock::now();
                CHECK(kind_of([&] { held.downgrade(upgraded ? upgradeable : shared); }) ==
                      (repeats ? errc{} : errc::outcome_unknown));
                CHECK(next.get());
                CHECK(lost);
                CHECK(std::chrono::steady_clock::now() - freed < 20s);
            }
        }
    }
}

TEST_CASE("an upgrade is served when the reader of another client leaves, also at its end") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool closes : {false, true}) {
            CAPTURE(closes);
            std::optional<client> reader;
            reader.emplace(database.source(), database.options());
            client writer{database.source(),
                          database.options({.ttl = 2min, .poll_interval = 1min})};
            auto read = shared_mutex{*reader, "page"}.acquire(shared);
            auto held = shared_mutex{writer, "page"}.acquire(upgradeable);
            auto next = std::async(std::launch::async, [&] { return held.try_upgrade_for(110s); });
            REQUIRE(eventually(
                [&] { return database.number("select count(*) from rowlock_ticket") == 1; }));
            REQUIRE(eventually([&] { return writer.stats().polls > 0; }));
            const auto left = std::chrono::steady_clock::now();
            read.release();
            if (closes) reader.reset();
            CHECK(next.get());
            CHECK(std::chrono::steady_clock::now() - left < 20s);
        }
    }
}

// The control: the end of an upgrade in which its caller has believed waits for that transaction.
TEST_CASE("an upgrade whose reply was lost is tried again in the same fenced transaction") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()),
                     database.watchful({.statement_timeout = 2s, .retry = {.attempts = 1}})};
        shared_mutex page{locks, "page"};
        auto held = page.acquire(upgradeable);
        const auto db = database.connect();
        db->query("begin", support::soon());
        fence(*db, held);
        network.after([&](std::string_view what) {
            if (what != "upgrade_lock") return;
            network.after({});
            interception::lose_reply();
        });
        CHECK(kind_of([&] { (void)held.try_upgrade(); }) == errc::outcome_unknown);
        CHECK(eventually([&] { return held.try_upgrade(); }));
        fence(*db, held);
        CHECK(kind_of([&] { held.downgrade(upgradeable); }) != errc{});
        db->query("commit", support::soon());
        CHECK(held.held());
    }
}

ROWLOCK_SIMULATED_CASE("an upgraded hold that is denied keeps all others out for its margin",
                       database) {
    client locks{database.source(),
                 database.options({.ttl = 1min, .heartbeat = 300ms, .margin = 3s})};
    client others{database.source(), database.options()};
    shared_mutex there{others, "page"};
    shared_mutex here{locks, "page"};
    auto held = here.acquire(upgradeable);
    held.upgrade();
    const auto lost = held.lost();
    database.run("update rowlock_hold set token = -1");
    REQUIRE(eventually([&] { return lost.stop_requested(); }));
    const auto told = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() < told + 2s) {
        CHECK_FALSE(there.try_acquire(shared).has_value());
        std::this_thread::sleep_for(100ms);
    }
    CHECK(eventually([&] { return there.try_acquire(shared).has_value(); }));
}

ROWLOCK_SIMULATED_CASE("a thread that reads by another thread's grant learns of its loss in a wait",
                       database) {
    client locks{database.source(), database.watchful()};
    client others{database.source(), database.options()};
    shared_mutex page{locks, "page", {.reader_linger = 1min}};
    const auto job = others.acquire("job");
    const std::shared_lock reads{page};
    auto waiting = std::async(std::launch::async, [&] {
        const std::shared_lock also{page};
        return kind_of([&] { (void)locks.try_acquire_for("job", patience); });
    });
    REQUIRE(eventually([&] { return !others.waiters("job").empty(); }));
    database.run("update rowlock_session set ended = " +
                 std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                 " where id = (select session from rowlock_hold)");
    CHECK(waiting.get() == errc::lock_lost);
}

ROWLOCK_SIMULATED_CASE("a hold in any mode is extended, also between a downgrade and an upgrade",
                       database) {
    two_clients two{database};
    // Each time it would have ended before the next.
    const auto held_on = [&](mode_lease& held) {
        std::this_thread::sleep_for(600ms);
        held.extend(1s);
        return held.held();
    };
    auto held = two.here.acquire(exclusive, {.max_duration = 1s});
    CHECK(held_on(held));
    const auto token = held.token();
    held.downgrade(upgradeable);
    CHECK(held.token() == token);
    CHECK(held_on(held));
    held.upgrade();
    CHECK(held_on(held));
    held.downgrade(shared);
    CHECK(held_on(held));
    CHECK(two.there.try_acquire(shared).has_value());
    held.release();
    auto unlimited = two.here.acquire(shared);
    CHECK(kind_of([&] { unlimited.extend(1h); }) == errc::invalid_options);
    mode_lease none;
    CHECK(kind_of([&] { none.extend(1h); }) == errc::not_owner);
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE("an upgraded hold ends by its own deadline", database) {
    two_clients two{database};
    std::optional<mode_lease> held;
    // On a machine that stalls it may end before the upgrade: then once more.
    REQUIRE(eventually([&] {
        held.reset();
        return kind_of([&] {
                   held = two.here.try_acquire_for(upgradeable, patience, {.max_duration = 800ms});
                   held.value().upgrade();
               }) == errc{};
    }));
    auto writes = waits(two.there, exclusive);
    CHECK(writes.get().held());
    CHECK_FALSE(held->held());
    CHECK(kind_of([&] { held->release(); }) == errc::lock_lost);
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE(
    "a downgrade that fails leaves a hold of the weaker mode, which goes on from there", database) {
    interception network;
    client locks{network.wrap(database.source()),
                 database.options({.ttl = 20s, .retry = {.attempts = 2}})};
    client others{database.source(), database.options()};
    shared_mutex here{locks, "page"};
    shared_mutex there{others, "page"};
    for (const auto next : {upgradeable, shared}) {
        CAPTURE(to_string(next));
        here.lock();
        network.before([](std::string_view what) {
            if (what.starts_with("shrink_permit") || what == "lower_lock") {
                throw error{errc::timed_out, "the row is locked"};
            }
        });
        CHECK(kind_of([&] { here.downgrade(next); }) == errc::timed_out);
        CHECK(here.mode() == next);
        CHECK(here.held());
        CHECK(there.inspect().value().exclusive);  // as the database still has it
        network.before({});
        if (next == upgradeable) {
            CHECK(here.try_upgrade());  // first the downgrade is made good
            here.downgrade(shared);
        }
        CHECK(eventually([&] {
            here.downgrade(shared);
            return there.try_lock_shared();
        }));
        there.unlock_shared();
        here.unlock_shared();
        CHECK_FALSE(here.held());
        CHECK(is_free(there));
    }
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE("a thread can unlock what it lost while it downgraded", database) {
    client locks{database.source(), database.watchful()};
    shared_mutex page{locks, "page"};
    page.lock();
    database.run("delete from rowlock_lock");
    CHECK(kind_of([&] { page.downgrade(shared); }) == errc::lock_lost);
    page.mode() == shared ? page.unlock_shared() : page.unlock();
    CHECK_FALSE(page.mode().has_value());
    (void)reap(database.source());
    CHECK(eventually([&] { return page.try_lock(); }));
    page.unlock();
}

TEST_CASE("a downgrade that is faster than the check of its grant is not taken for a loss") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client holder{database.source(), database.options()};
        client next{network.wrap(database.source()), database.options({.poll_interval = 1min})};
        shared_mutex here{holder, "page"};
        shared_mutex there{next, "page"};
        auto first = here.acquire(exclusive);
        auto waiting = waits(there, exclusive);
        REQUIRE(entries(database, 1));
        REQUIRE(eventually([&] { return next.stats().polls > 0; }));
        // Its loop checks what it was told of, and is held up until the mode has changed: where the
        // caller has the grant before that check.
        std::atomic<bool> checks{false}, has_grant{false};
        std::promise<void> go;
        const auto gone = go.get_future().share();
        network.before([&, gone](std::string_view what) {
            if (what != "confirm_and_read_next" && what != "next_waiter") return;
            if (checks.exchange(true)) return;
            if (eventually([&] { return has_grant.load(); }, 1s)) gone.wait();
        });
        const support::at_end opens{[&] {
            if (!checks.exchange(true)) go.set_value();
            network.before({});
        }};
        first.release();
        auto held = waiting.get();
        has_grant = true;
        const bool checked = eventually([&] { return checks.load(); }, 2s);
        held.downgrade(shared);
        if (checked) go.set_value();
        // The control: where the database tells of the grant it is checked.
        if (database.speaks() == sql::dialect::postgresql) CHECK(checked);
        auto reads = here.try_acquire_for(shared, patience);
        CHECK(reads);
        CHECK_FALSE(eventually([&] { return !held.held(); }, 500ms));
        held.release();
        reads.reset();
        CHECK(is_free(here));
        CHECK(counts(database));
    }
}

TEST_CASE("a downgrade whose replies are lost for good leaves a hold that is found as either") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const std::string then : {"released", "destroyed", "extended", "downgraded"}) {
            CAPTURE(then);
            interception network;
            client locks{network.wrap(database.source()),
                         database.options({.ttl = 30s, .retry = {.attempts = 2}})};
            client others{database.source(), database.options()};
            shared_mutex there{others, "page"};
            std::optional held{
                shared_mutex{locks, "page"}.acquire(exclusive, {.max_duration = 10min})};
            std::atomic<bool> done{false};
            network.before([&](std::string_view what) {
                const bool beats = what == "heartbeat" || what == "adopt_revision";
                if (done && !beats) throw error{errc::timed_out, "the server does not answer"};
            });
            network.after([&](std::string_view what) {
                const bool commits = database.speaks() == sql::dialect::postgresql
                                         ? what == "lower_lock"
                                         : what == "commit" || what == "lower_lock";
                if (commits && database.number("select count(*) from rowlock_hold") > 0) {
                    done = true;
                    interception::lose_reply();
                }
            });
            CHECK(kind_of([&] { held->downgrade(shared); }) != errc{});
            REQUIRE(done);
            network.before({});
            network.after({});
            CHECK(held->held());
            CHECK(database.number("select count(*) from rowlock_hold") == 1);
            const auto db = database.source().connect(support::soon());
            db->query(database.speaks() == sql::dialect::sqlite ? "begin immediate" : "begin",
                      support::soon());
            CHECK(kind_of([&] { fence(*db, *held); }) == errc::conflict);
            db->query("rollback", support::soon());
            if (then == "extended") held->extend(30min);
            if (then == "downgraded") held->downgrade(shared);
            if (then == "extended" || then == "downgraded") {
                CHECK(held->held());
                CHECK(there.try_acquire(shared).has_value());
                db->query("begin", support::soon());
                CHECK(kind_of([&] { fence(*db, *held); }) == errc{});
                db->query("rollback", support::soon());
            }
            if (then != "destroyed") held->release();
            held.reset();
            CHECK(is_free(there));
            CHECK(there.try_acquire(exclusive).has_value());
            CHECK(counts(database));
        }
    }
}

ROWLOCK_SIMULATED_CASE("a downgrade whose reply was lost is done once", database) {
    interception network;
    client locks{network.wrap(database.source()), database.options({.ttl = 1min})};
    client others{database.source(), database.options()};
    shared_mutex here{locks, "page"};
    shared_mutex there{others, "page"};
    auto held = here.acquire(exclusive);
    std::atomic<bool> shrunk{false};
    std::atomic<bool> lost{false};
    network.after([&](std::string_view what) {
        shrunk = shrunk || what == "lower_lock";
        const bool commits = database.speaks() == sql::dialect::postgresql
                                 ? what == "lower_lock"
                                 : shrunk && what == "commit";
        if (commits && !lost.exchange(true)) interception::lose_reply();
    });
    held.downgrade(shared);
    REQUIRE(lost);
    CHECK(held.held());
    CHECK(there.inspect().value().shared == 1);
    CHECK(there.try_acquire(shared).has_value());
    held.release();
    CHECK(is_free(there));
    CHECK(counts(database));
}

TEST_CASE("the name of a semaphore is refused, and the other way round") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        semaphore api{locks, "api"};
        shared_mutex page{locks, "page"};
        CHECK(api.create(3));
        shared_mutex api_again{locks, "api"};
        semaphore page_again{locks, "page"};
        /// With an error that has the name.
        const auto refuses = [](const std::string& name, auto call) {
            try {
                call();
            } catch (const error& refused) {
                CAPTURE(std::string{refused.what()});
                CHECK(std::string_view{refused.what()}.find('"' + name + '"') !=
                      std::string_view::npos);
                return refused.kind() == errc::invalid_options;
            }
            return false;
        };
        CHECK(refuses("api", [&] { api_again.lock_shared(); }));
        CHECK(refuses("api", [&] { api_again.lock(); }));
        CHECK(refuses("api", [&] { (void)locks.acquire("api"); }));
        CHECK(refuses("api", [&] { (void)locks.try_acquire("api"); }));
        CHECK(refuses("api", [&] { (void)locks.try_acquire_for("api", patience); }));
        CHECK(refuses("api", [&] { (void)locks.acquire_all({"another", "api"}); }));
        CHECK(refuses("api", [&] { (void)locks.acquire_all({{"another"}, {"api", shared}}); }));
        CHECK_FALSE(api_again.inspect().has_value());
        CHECK(api.inspect().value().used == 0);
        {
            const std::shared_lock reads{page};
            CHECK(refuses("page", [&] { (void)page_again.acquire(); }));
            CHECK(refuses("page", [&] { page_again.set_capacity(5); }));
            CHECK(refuses("page", [&] { (void)page_again.create(5); }));
            CHECK_FALSE(page_again.inspect().has_value());
        }
        semaphore job{locks, "job"};
        {
            const auto lease = locks.acquire("job");
            CHECK(refuses("job", [&] { (void)job.acquire(); }));
            CHECK(refuses("job", [&] { job.set_capacity(5); }));
            CHECK(refuses("job", [&] { (void)job.create(5); }));
            CHECK(lease.held());
        }
        // What nobody holds or waits for may become one.
        for (auto* const free : {&page_again, &job}) {
            CHECK(eventually([&] { return kind_of([&] { free->set_capacity(5); }) == errc{}; }));
            CHECK(free->try_acquire());
        }
        CHECK(refuses("page", [&] { page.lock_shared(); }));
        CHECK(refuses("job", [&] { (void)locks.try_acquire("job"); }));
    }
}

TEST_CASE("a fenced transaction of a reader keeps the writer out, also if the reader dies") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const bool one_writer = database.speaks() == sql::dialect::sqlite;
        const auto begin = one_writer ? "begin immediate" : "begin";
        two_clients two{database};
        const auto db = database.source().connect(support::soon());
        {
            two.here.lock_upgrade();
            two.here.upgrade();
            db->query(begin, support::soon());
            fence(*db, two.here);
            if (!one_writer) {
                CHECK(database.number("select count(*) from rowlock_hold") == 1);
                const auto other = database.source().connect(support::soon());
                other->query("begin", support::soon());
                CHECK(other
                          ->query(sql::qualify("select grant_id from rowlock_hold for update "
                                               "skip locked",
                                               database.speaks(), database.source().tables()),
                                  support::soon())
                          .empty());
            }
            db->query("commit", support::soon());
            two.here.unlock();
            db->query(begin, support::soon());
            CHECK(kind_of([&] { fence(*db, two.here); }) == errc::not_owner);
            db->query("rollback", support::soon());
        }
        auto held = two.here.acquire(shared);
        db->query(begin, support::soon());
        fence(*db, held);
        if (!one_writer) {
            database.run("update rowlock_session set ended = " +
                         std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                         " where id = (select session from rowlock_hold)");
            auto writes = waits(two.there, exclusive);
            CHECK(writes.wait_for(500ms) == std::future_status::timeout);
            db->query("commit", support::soon());
            CHECK(writes.get().held());
        } else {
            db->query("commit", support::soon());
        }
        // What is over cannot be fenced.
        database.run("delete from rowlock_hold");
        auto gone = waits(two.there, shared);
        database.run("update rowlock_lock set used = 0");
        auto last = gone.get();
        database.run("delete from rowlock_hold");
        db->query(begin, support::soon());
        CHECK(kind_of([&] { fence(*db, last); }) == errc::lock_lost);
        db->query("rollback", support::soon());
        CHECK_FALSE(last.held());
    }
}

TEST_CASE("one name is one lock: a mutex waits for its readers, and readers for a mutex") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        // Neither a poll, nor a heartbeat, nor the end of a session comes in time.
        const client_options patient{.ttl = 5min, .poll_interval = 1min};
        constexpr auto long_before_a_poll = 20s;
        client readers{database.source(), database.options(patient)};
        client writer{database.source(), database.options(patient)};
        shared_mutex page{readers, "page"};
        const auto waits_alone = [&] {
            return std::async(std::launch::async,
                              [&] { return support::acquire_soon(writer, "page"); });
        };
        auto one = page.acquire(shared);
        auto second = page.acquire(shared);
        CHECK_FALSE(writer.try_acquire("page"));
        CHECK_FALSE((mutex{writer, "page"}.try_lock()));
        auto waiting = waits_alone();
        REQUIRE(entries(database, 1));
        CHECK_FALSE(page.try_acquire(shared).has_value());  // no reader passes it
        one.release();
        CHECK(waiting.wait_for(200ms) == std::future_status::timeout);
        second.release();
        REQUIRE(waiting.wait_for(long_before_a_poll) == std::future_status::ready);
        auto lease = waiting.get();
        CHECK(lease.token() > second.token());

        for (const auto mode : {shared, upgradeable, exclusive}) {
            CAPTURE(to_string(mode));
            CHECK_FALSE(page.try_acquire(mode).has_value());
            auto takes = waits(page, mode);
            REQUIRE(entries(database, 1));
            CHECK(takes.wait_for(50ms) == std::future_status::timeout);
            lease.release();
            REQUIRE(takes.wait_for(long_before_a_poll) == std::future_status::ready);
            auto taken = takes.get();
            CHECK(taken.held());
            CHECK(taken.token() > lease.token());
            waiting = waits_alone();
            REQUIRE(entries(database, 1));
            taken.release();
            REQUIRE(waiting.wait_for(long_before_a_poll) == std::future_status::ready);
            lease = waiting.get();
            CHECK(lease.token() > taken.token());
        }

        // Readers that stand in line enter together, and the mutex behind them afterwards.
        std::vector<std::future<mode_lease>> reads;
        for (int i = 0; i < 3; ++i) reads.push_back(waits(page, shared));
        REQUIRE(entries(database, 3));
        waiting = waits_alone();
        REQUIRE(entries(database, 4));
        lease.release();
        std::vector<mode_lease> all;
        for (auto& each : reads) {
            REQUIRE(each.wait_for(long_before_a_poll) == std::future_status::ready);
            all.push_back(each.get());
        }
        CHECK(waiting.wait_for(50ms) == std::future_status::timeout);
        all.clear();
        REQUIRE(waiting.wait_for(long_before_a_poll) == std::future_status::ready);
        CHECK(waiting.get().held());
        CHECK(counts(database));
    }
}

TEST_CASE("a waiter for a mutex that gives up lets the readers behind it in") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const client_options patient{.ttl = 5min, .poll_interval = 1min};
        client locks{database.source(), database.options(patient)};
        client other{database.source(), database.options(patient)};
        shared_mutex page{locks, "page"};
        const auto read = page.acquire(shared);
        std::stop_source stop;
        auto leaves =
            std::async(std::launch::async, [&] { return other.acquire("page", stop.get_token()); });
        const support::at_end stops{[&] { stop.request_stop(); }};
        REQUIRE(entries(database, 1));
        auto behind = waits(page, shared);
        REQUIRE(entries(database, 2));
        CHECK(behind.wait_for(50ms) == std::future_status::timeout);
        stop.request_stop();
        CHECK_FALSE(leaves.get().has_value());
        REQUIRE(behind.wait_for(20s) == std::future_status::ready);  // long before a poll
        CHECK(behind.get().held());
        CHECK(counts(database));
    }
}

TEST_CASE("a mutex passes a reader whose session has expired, and a reader such a mutex") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const support::protocol_connection hand{database};
        const auto counters = protocol::make_semaphore_protocol(database.statements());
        client locks{database.source(), database.options({.poll_interval = 100ms})};
        shared_mutex page{locks, "page"};
        std::int64_t last = 0;
        /// Session `last`, which has no client, holds it.
        const auto hold = [&](bool reads) {
            const session_id gone{++last};
            hand.open(gone);
            if (!reads) {
                REQUIRE(hand.try_acquire("page", gone, grant_id{last}));
                return;
            }
            support::make_lock(hand.db(), database.statements(), "page");
            const auto made =
                counters->acquire(hand.db(),
                                  {.name = "page",
                                   .session = gone,
                                   .grant_id = grant_id{last},
                                   .thread = {},
                                   .note = {},
                                   .deadline_us = std::nullopt,
                                   .permits = {.count = protocol::permits_for(shared),
                                               .of = protocol::counter_kind::shared_mutex}},
                                  support::soon());
            REQUIRE(made.what == protocol::attempt::outcome::granted);
        };
        const auto expire = [&] {
            database.run("update rowlock_session set expires_at = opened_at where id = " +
                         std::to_string(last));
        };
        for (const bool reads : {true, false}) {
            CAPTURE(reads);
            const auto is_granted = [&](std::chrono::milliseconds time) {
                if (reads) return locks.try_acquire_for("page", time).has_value();
                return page.try_acquire_for(shared, time).has_value();
            };
            const auto is_granted_at_once = [&] {
                if (reads) return locks.try_acquire("page").has_value();
                return page.try_acquire(shared).has_value();
            };
            hold(reads);
            CHECK_FALSE(is_granted_at_once());
            expire();
            CHECK(is_granted_at_once());
            REQUIRE(support::nobody_holds(database));
            REQUIRE(is_free(page));

            hold(reads);
            auto waiting = std::async(std::launch::async, [&] { return is_granted(patience); });
            REQUIRE(entries(database, 1));
            expire();
            CHECK(waiting.get());
            REQUIRE(support::nobody_holds(database));
            REQUIRE(is_free(page));
        }
        CHECK(counts(database));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a reader of a client that vanished, and its mutex, come back, and not before it knows of the "
    "loss",
    database) {
    for (const bool reads : {true, false}) {
        CAPTURE(reads);
        interception network;
        client cut_off{network.wrap(database.source()),
                       database.options({.ttl = 1s, .poll_interval = 100ms})};
        client others{database.source(), database.options({.poll_interval = 100ms})};
        shared_mutex here{cut_off, "page"};
        shared_mutex there{others, "page"};
        std::optional<mode_lease> read;
        std::optional<lease> sole;
        if (reads) {
            read = here.acquire(shared);
        } else {
            sole = cut_off.acquire("page");
        }
        const auto held = [&] { return reads ? read->held() : sole->held(); };
        auto waiting = std::async(std::launch::async, [&] {
            if (reads) {
                const auto got = support::acquire_soon(others, "page");
                return std::pair{got.held(), held()};
            }
            const auto got = acquire_soon(there, shared);
            return std::pair{got.held(), held()};
        });
        REQUIRE(enters_or_ends(database, waiting, "rowlock_ticket"));
        network.before([](std::string_view) { interception::refuse_to_send(); });
        const auto [got, still_held] = waiting.get();
        CHECK(got);
        CHECK_FALSE(still_held);
        network.before({});
        CHECK(counts(database));
        CHECK(is_free(there));
        CHECK(support::nobody_holds(database));
    }
}

TEST_CASE("a fenced transaction of a mutex keeps readers out, also if its session has ended") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        two_clients two{database};
        const auto held = two.first.acquire("page");
        const auto db = database.source().connect(support::soon());
        db->query("begin", support::soon());
        fence(*db, held);
        database.run("update rowlock_session set ended = " +
                     std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                     " where id = (select session from rowlock_lock where name = 'page')");
        auto reads = waits(two.there, shared);
        CHECK(reads.wait_for(500ms) == std::future_status::timeout);
        db->query("commit", support::soon());
        CHECK(reads.get().held());
        CHECK(counts(database));
    }
}

TEST_CASE("permits are fenced in the caller's transaction") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const auto begin = database.speaks() == sql::dialect::sqlite ? "begin immediate" : "begin";
        client locks{database.source(), database.options()};
        semaphore api{locks, "api"};
        api.set_capacity(2);
        auto held = api.acquire();
        const auto db = database.source().connect(support::soon());
        db->query(begin, support::soon());
        CHECK_NOTHROW(fence(*db, held));
        db->query("commit", support::soon());
        held.release();
        db->query(begin, support::soon());
        CHECK(kind_of([&] { fence(*db, held); }) == errc::not_owner);
        CHECK(kind_of([&] { fence(*db, permits{}); }) == errc::not_owner);
        db->query("rollback", support::soon());
    }
}

TEST_CASE("readers and writers at random: never a writer beside another holder") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr int threads = 3;
        constexpr int turns = 6;
        std::atomic<int> readers{0};
        std::atomic<int> owners{0};  // upgradeable or exclusive
        std::atomic<int> writers{0};
        std::atomic<int> violations{0};
        std::atomic<int> grants{0};
        const auto check = [&](bool holds) {
            if (!holds) ++violations;
        };
        const auto pause = [](std::mt19937& random) {
            std::this_thread::sleep_for(std::chrono::microseconds{random() % 3000});
        };
        const auto reads = [&](std::mt19937& random) {
            ++readers;
            check(writers == 0);
            pause(random);
            --readers;
        };
        // On a busy machine the time may be over before the database has answered.
        const auto upgrades_in_time = [](mode_lease& held) {
            try {
                return held.try_upgrade_for(20ms);
            } catch (const error& failure) {
                if (failure.kind() != errc::timed_out) throw;
                return false;
            }
        };
        const auto writes = [&](std::mt19937& random) {
            check(writers++ == 0 && readers == 0);
            pause(random);
            --writers;
        };
        const auto work = [&](shared_mutex& page, std::uint32_t seed) {
            std::mt19937 random{seed};
            for (int turn = 0; turn < turns; ++turn) {
                ++grants;
                const auto what = random() % 10;
                if (what < 5) {
                    const auto held = page.acquire(shared);
                    reads(random);
                } else if (what < 8) {
                    auto held = page.acquire(upgradeable);
                    check(owners++ == 0);
                    reads(random);
                    if (what != 7 || upgrades_in_time(held)) {
                        if (what != 7) held.upgrade();
                        writes(random);
                    }
                    --owners;
                } else {
                    auto held = page.acquire(exclusive);
                    check(owners++ == 0);
                    writes(random);
                    --owners;
                    if (what == 9) {
                        held.downgrade(shared);
                        reads(random);
                    }
                }
            }
        };
        {
            std::vector<std::unique_ptr<client>> clients;
            std::vector<std::unique_ptr<shared_mutex>> locks;
            std::vector<std::jthread> all;
            for (std::uint32_t i = 0; i < 3; ++i) {
                clients.push_back(std::make_unique<client>(database.source(), database.options()));
                locks.push_back(std::make_unique<shared_mutex>(*clients.back(), "page"));
                for (std::uint32_t thread = 0; thread < threads; ++thread) {
                    all.emplace_back([&, &page = *locks.back(), seed = 10 * i + thread] {
                        try {
                            work(page, seed);
                        } catch (const error& failure) {
                            FAIL_CHECK(std::string{failure.what()});
                        }
                    });
                }
            }
            all.clear();
            CHECK(is_free(*locks.front()));
        }
        CHECK(violations == 0);
        CHECK(grants == 3 * threads * turns);
        CHECK(counts(database));
    }
}

TEST_CASE("a waiter for permits survives one for a mode, whose name has become a semaphore") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options({.poll_interval = 200ms})};
        semaphore slots{locks, "slots"};
        slots.set_capacity(1);
        std::optional<permits> held = slots.acquire();
        auto waiting = std::async(std::launch::async, [&] {
            return kind_of([&] { (void)slots.try_acquire_for(1, patience); });
        });
        REQUIRE(entries(database, 1));
        // A reader of the same client whose ticket was committed beside the change of the name.
        database.run("update rowlock_lock set capacity = null, used = 1999999999");
        auto reads = std::async(std::launch::async, [&] {
            return kind_of([&] {
                (void)shared_mutex{locks, "slots"}.try_acquire_for(shared, patience);
            });
        });
        REQUIRE(entries(database, 2));
        database.run("update rowlock_lock set capacity = 1, used = 1");
        CHECK(reads.get() == errc::invalid_options);
        CHECK(waiting.wait_for(1s) == std::future_status::timeout);
        held.reset();
        CHECK(waiting.get() == errc{});
    }
}

TEST_CASE("who waits for permits behind an entry that is refused is served") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options({.poll_interval = 200ms})};
        client other{database.source(), database.options({.poll_interval = 200ms})};
        shared_mutex page{locks, "page"};
        std::optional<mode_lease> held = page.acquire(exclusive);
        auto sole = std::async(std::launch::async, [&] {
            return kind_of([&] { (void)other.try_acquire_for("page", patience); });
        });
        REQUIRE(entries(database, 1));
        database.run(
            "update rowlock_lock set session = null, grant_id = null, acquired_at = null, capacity "
            "= 3, token = token + 1");
        CHECK(elsewhere([&] { return semaphore{locks, "page"}.try_acquire_for(1, patience); }));
        CHECK(sole.get() == errc::invalid_options);
    }
}

TEST_CASE("a client does not enqueue for good for a name that somebody waited for once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options({.poll_interval = 100ms})};
        client other{database.source(), database.options({.poll_interval = 100ms})};
        // A look at the queue that is under way may meet the next entry, and note the name once
        // more.
        const auto alone = [&] {
            REQUIRE(support::nobody_holds(database));
            const auto before = locks.stats().queued;
            for (int i = 0; i < 20; ++i) locks.acquire("page").release();
            return locks.stats().queued - before;
        };
        auto held = locks.acquire("page");
        SUBCASE("a mutex") {
            auto waiting = std::async(std::launch::async, [&] { other.acquire("page").release(); });
            REQUIRE(entries(database, 1));
            held.release();
            waiting.get();
            CHECK(eventually([&] { return alone() <= 2; }));
        }
        SUBCASE("a reader") {
            auto waiting = std::async(std::launch::async, [&] {
                shared_mutex{other, "page"}.acquire(shared).release();
            });
            REQUIRE(entries(database, 1));
            held.release();
            waiting.get();
            CHECK(eventually([&] { return alone() <= 2; }));
        }
    }
}

TEST_CASE("a thread that holds a mutex does not wait for itself in a mode, nor the reverse") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        shared_mutex page{locks, "page"};
        mutex all{locks, "page"};
        {
            const std::lock_guard held{all};
            CHECK(kind_of([&] { (void)page.try_lock_shared_for(patience); }) ==
                  errc::would_deadlock);
            CHECK_FALSE(page.try_lock_shared());
            CHECK(kind_of([&] { (void)page.try_lock_for(patience); }) == errc::would_deadlock);
        }
        {
            const std::unique_lock held{page};
            CHECK(kind_of([&] { (void)all.try_lock_for(patience); }) == errc::would_deadlock);
        }
        const std::shared_lock held{page};
        CHECK(kind_of([&] { (void)all.try_lock_for(patience); }) == errc::would_deadlock);
        CHECK_FALSE(all.try_lock());
    }
}

ROWLOCK_SIMULATED_CASE("a lease that became a mode waits for its upgrade as any mode does",
                       database) {
    client holder{database.source(), database.options()};
    client other{database.source(), database.options()};
    mode_lease mine{holder.acquire("page")};
    mine.downgrade(upgradeable);
    auto reading = shared_mutex{other, "page"}.acquire(shared);
    std::jthread reader{[&] {
        CHECK(entries(database, 1));
        reading.release();
    }};
    mine.upgrade();
    CHECK(mine.mode() == exclusive);
}

// The first part of its session: the heartbeat has read what it has as a whole, and does not know
// yet that there are parts.
ROWLOCK_SIMULATED_CASE("a hold that is downgraded while its client reads its holds is not lost",
                       database) {
    interception network;
    client holder{network.wrap(database.source()),
                  database.options({.ttl = 20s, .heartbeat = 100ms})};
    client other{database.source(), database.options()};
    auto bystander = holder.acquire("other");
    auto writing = shared_mutex{holder, "page"}.acquire(exclusive);
    std::atomic<bool> lowered{false};
    network.before([&, caller = std::this_thread::get_id(),
                    once = std::make_shared<std::atomic<bool>>(true)](std::string_view what) {
        if (what != "session_leases" || std::this_thread::get_id() == caller) return;
        if (!once->exchange(false)) return;
        writing.downgrade(shared);
        lowered = true;
    });
    REQUIRE(other.request_release("other", bystander.token()));
    REQUIRE(eventually([&] { return !bystander.held(); }));
    CHECK(lowered);
    CHECK(writing.held());
    std::this_thread::sleep_for(1s);
    CHECK(writing.held());
    CHECK(shared_mutex{other, "page"}.inspect()->shared == 1);
}
