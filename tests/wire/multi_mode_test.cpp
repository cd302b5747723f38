// Modes of several shared_mutexes at once, as programs use them: all or none, over several clients,
// in any order of the names; and what becomes of them after lost replies, lost entries, losses and
// time limits.
// shows: promise-14

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
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
using modes = std::vector<lock_request>;

namespace {

constexpr auto shared = lock_mode::shared;
constexpr auto upgradeable = lock_mode::upgradeable;
constexpr auto exclusive = lock_mode::exclusive;

std::int64_t held(support::lock_database& database) {
    return database.number("select count(*) from rowlock_hold") +
           database.number("select count(*) from rowlock_lock where session is not null");
}

std::int64_t entries(support::lock_database& database) {
    return database.number("select count(*) from rowlock_ticket");
}

/// Polls so seldom that only a wake-up can end a wait within the time of a test.
client_options sleepy(support::lock_database& database) {
    return database.options({.poll_interval = 1h});
}

/// Session 1, which holds "a" and "b".
class session_without_client {
public:
    session_without_client(support::lock_database& database,
                           const support::protocol_connection& hand)
        : hand_{hand}, counters_{protocol::make_semaphore_protocol(database.statements())} {
        hand.open(session_id{1});
        for (const char* name : {"a", "b"}) {
            support::make_lock(hand.db(), database.statements(), name);
            const auto made =
                counters_->acquire(hand.db(),
                                   {.name = name,
                                    .session = session_id{1},
                                    .grant_id = grant_id{name[0]},
                                    .thread = {},
                                    .note = {},
                                    .deadline_us = std::nullopt,
                                    .permits = {.count = protocol::permits_for(exclusive),
                                                .of = protocol::counter_kind::shared_mutex}},
                                   soon());
            REQUIRE(made.what == protocol::attempt::outcome::granted);
        }
    }
    void end() const { hand_.end(session_id{1}); }
    void take_back() const {
        for (const char* name : {"a", "b"}) {
            static_cast<void>(counters_->sweep(hand_.db(), name, soon()));
        }
    }

private:
    const support::protocol_connection& hand_;
    const std::unique_ptr<const protocol::semaphore_protocol> counters_;
};

std::future<std::optional<multi_lease>> waits_for(client& locks, modes wanted,
                                                  std::chrono::milliseconds time = 20s) {
    return std::async(std::launch::async, [&locks, wanted = std::move(wanted), time] {
        return locks.try_acquire_all_for(wanted, time);
    });
}

}  // namespace

TEST_CASE("all modes are held together, beside those that fit, and each has its own token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        client other{database.source(), database.options()};
        auto all = locks.acquire_all({{"b", exclusive}, {"c", upgradeable}, {"a", shared}},
                                     {.note = "stocktaking"});
        CHECK(all.held());
        CHECK(all.remaining() > 0ms);
        CHECK_FALSE(all.lost().stop_requested());
        REQUIRE(all.size() == 3);
        CHECK(all.leases()[0].name() == "a");
        CHECK(kind_of([&] { static_cast<void>(all["d"]); }) == errc::not_owner);
        for (const auto& [name, mode] :
             {std::pair{"a", shared}, {"b", exclusive}, {"c", upgradeable}}) {
            const auto seen = shared_mutex{other, name}.holders();
            REQUIRE(seen.size() == 1);
            CHECK(seen.front().token == all[name].token());
            CHECK(seen.front().mode == mode);
            CHECK(seen.front().who.note == "stocktaking");
        }
        CHECK_FALSE(other.try_acquire_all({{"a", shared}, {"b", shared}}));
        CHECK_FALSE(other.try_acquire_all({{"a", exclusive}, {"d", shared}}));
        {
            const auto readers = other.try_acquire_all({{"a", shared}, {"c", shared}});
            REQUIRE(readers);
            CHECK(held(database) == 5);
        }
        CHECK(eventually([&] { return held(database) == 3; }));
        all.release();
        CHECK_FALSE(all.held());
        CHECK(held(database) == 0);
        CHECK_NOTHROW(all.release());  // again
        CHECK(locks.stats().acquired == 3);
        CHECK(other.stats().acquired == 2);
    }
}

TEST_CASE("a waiter for several modes gets them when the last of them fits") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options()};
        client second{database.source(), database.options()};
        client waiter{database.source(), sleepy(database)};
        auto a = shared_mutex{first, "a"}.acquire(exclusive);
        auto b = shared_mutex{second, "b"}.acquire(shared);
        auto waiting = waits_for(waiter, {{"a", shared}, {"b", exclusive}, {"c", shared}});
        REQUIRE(eventually([&] { return entries(database) == 3; }));
        // None of them is taken before all fit, and no newcomer passes.
        CHECK_FALSE(shared_mutex{first, "c"}.try_acquire(shared));
        a.release();
        CHECK_FALSE(shared_mutex{first, "a"}.try_acquire(shared));
        CHECK(waiting.wait_for(50ms) == std::future_status::timeout);
        CHECK(held(database) == 1);
        b.release();
        auto all = waiting.get();
        REQUIRE(all);
        CHECK(all->held());
        CHECK(entries(database) == 0);
        CHECK((*all)["a"].token() > a.token());
        CHECK(waiter.stats().queued == 1);
    }
}

TEST_CASE("readers behind a request for several modes enter with it, writers after it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        client several{database.source(), sleepy(database)};
        client single{database.source(), sleepy(database)};
        auto a = shared_mutex{holder, "a"}.acquire(exclusive);
        auto all = waits_for(several, {{"a", shared}, {"b", exclusive}});
        REQUIRE(eventually([&] { return entries(database) == 2; }));
        const auto waits = [&](const char* name, lock_mode mode) {
            return std::async(std::launch::async, [&single, name, mode] {
                return shared_mutex{single, name}.try_acquire_for(mode, support::patience).value();
            });
        };
        auto reader = waits("a", shared);
        REQUIRE(eventually([&] { return entries(database) == 3; }));
        auto writer = waits("b", exclusive);
        REQUIRE(eventually([&] { return entries(database) == 4; }));
        a.release();
        auto got = all.get();
        REQUIRE(got);
        CHECK(reader.get().held());
        CHECK(got->held());
        CHECK(writer.wait_for(20ms) == std::future_status::timeout);
        got->release();
        CHECK(writer.get().held());
    }
}

TEST_CASE("one request takes whole locks, modes and permits, and waits for all of them") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        client other{database.source(), database.options()};
        semaphore api{other, "api"};
        api.set_capacity(3);
        shared_mutex prices{other, "prices"};
        const auto permits_of = &lock_request::of_semaphore;
        const modes wanted{"stock", {"prices", shared}, permits_of("api", 2)};
        auto all = locks.acquire_all(wanted);
        REQUIRE(all.size() == 3);
        CHECK(all.held());
        CHECK_FALSE(other.try_acquire("stock"));
        CHECK(prices.try_acquire(shared));
        CHECK_FALSE(prices.try_acquire(exclusive));
        CHECK(api.try_acquire(1));
        CHECK_FALSE(api.try_acquire(2));

        auto waiting = waits_for(other, {{"prices", exclusive}, permits_of("api", 2)});
        REQUIRE(eventually([&] { return entries(database) == 2; }));
        CHECK_FALSE(api.try_acquire(1));  // the request stands before it
        auto next = waits_for(locks, {{"prices", shared}, "another"});
        REQUIRE(eventually([&] { return entries(database) == 4; }));
        const auto before = all["prices"].token();
        all.release();
        auto got = waiting.get();
        REQUIRE(got);
        CHECK((*got)["prices"].token() > before);
        CHECK(next.wait_for(20ms) == std::future_status::timeout);
        got->release();
        CHECK(next.get()->held());
        CHECK(database.number("select used from rowlock_lock where name = 'api'") == 0);
        CHECK(entries(database) == 0);
    }
}

ROWLOCK_SIMULATED_CASE("a request for several is refused for what a name cannot give", database) {
    client locks{database.source(), database.options()};
    semaphore{locks, "api"}.set_capacity(3);
    const auto refused = [&](const lock_request& wanted) {
        return kind_of([&] { static_cast<void>(locks.try_acquire_all({"b", wanted})); });
    };
    CHECK(refused({"api"}) == errc::invalid_options);
    CHECK(refused({"api", shared}) == errc::invalid_options);
    CHECK(refused(lock_request::of_semaphore("api", 4)) == errc::invalid_options);
    CHECK(refused(lock_request::of_semaphore("api", 0)) == errc::invalid_options);
    CHECK(refused(lock_request::of_semaphore("unknown", 0)) == errc::invalid_options);
    CHECK(kind_of([&] {
              static_cast<void>(
                  locks.try_acquire_all({"b", {"c", shared}}, {.queueing = queueing::barging}));
          }) == errc::invalid_options);
    CHECK(refused(lock_request::of_semaphore("none", 1)) == errc::invalid_options);
    static_cast<void>(locks.acquire("lease"));
    CHECK(refused(lock_request::of_semaphore("lease", 1)) == errc::invalid_options);
    CHECK(refused(lock_request::of_semaphore("api", 3)) == errc{});
    CHECK(held(database) == 0);
}

ROWLOCK_SIMULATED_CASE("a lease becomes a mode_lease, unless it is of permits, or of nothing",
                       database) {
    client locks{database.source(), database.options()};
    client other{database.source(), database.options()};
    mode_lease writes{locks.acquire("page")};
    CHECK(writes.mode() == exclusive);
    CHECK_FALSE(other.try_acquire_all({{"page", shared}, "b"}));
    const auto token = writes.token();
    writes.downgrade(shared);
    CHECK(writes.held());
    CHECK(writes.token() == token);
    CHECK(other.try_acquire_all({{"page", shared}, "b"}));
    CHECK(kind_of([] { static_cast<void>(mode_lease{lease{}}); }) == errc::not_owner);
    semaphore{locks, "api"}.set_capacity(3);
    auto permits = locks.acquire_all({lock_request::of_semaphore("api", 1)}).split();
    CHECK(kind_of([&] { static_cast<void>(permits.front().offer()); }) == errc::invalid_options);
    CHECK(kind_of([&] { static_cast<void>(mode_lease{std::move(permits.front())}); }) ==
          errc::invalid_options);
    CHECK(permits.front().held());  // a refused conversion leaves it
}

ROWLOCK_SIMULATED_CASE(
    "modes are refused that no call could serve, and locks that the thread holds", database) {
    client locks{database.source(), database.options()};
    const auto refused = [&](const modes& wanted) {
        return kind_of([&] { static_cast<void>(locks.try_acquire_all(wanted)); });
    };
    CHECK(refused({}) == errc::invalid_options);
    CHECK(refused({{"a", shared}, {"b"}, {"a", exclusive}}) == errc::invalid_options);
    modes many;
    for (int i = 0; i < 17; ++i) many.push_back({"name " + std::to_string(i), shared});
    CHECK(refused(many) == errc::invalid_options);
    many.pop_back();
    auto sixteen = locks.try_acquire_all(many);
    REQUIRE(sixteen);
    CHECK(sixteen->size() == 16);
    sixteen->release();
    CHECK(held(database) == 0);

    {
        const auto one = shared_mutex{locks, "a"}.acquire(shared);
        CHECK(refused({{"a", shared}, {"b"}}) == errc::would_deadlock);
        CHECK(refused({{"a", shared}}) == errc::would_deadlock);
        CHECK(refused({{"a", exclusive}}) == errc::would_deadlock);
        CHECK(kind_of([&] {
                  static_cast<void>(locks.try_acquire_all({"a", "b"}));
              }) == errc::would_deadlock);
        // Another thread may release that; so may this one, before it asks.
        std::jthread{[&] { CHECK(refused({{"a", shared}, {"b"}}) == errc{}); }}.join();
    }
    shared_mutex read{locks, "r"};
    read.lock_shared();
    CHECK(refused({{"r", shared}, {"b"}}) == errc::would_deadlock);
    read.unlock_shared();
    CHECK(refused({{"r", shared}, {"b"}}) == errc{});
    {
        const auto lease = locks.acquire("lease");
        CHECK(refused({{"b"}, {"lease", shared}}) == errc::would_deadlock);
        CHECK(std::async(std::launch::async, [&] {
                  return kind_of([&] {
                      CHECK_FALSE(locks.try_acquire_all({{"b"}, {"lease", shared}}));
                  });
              }).get() == errc{});
    }
    CHECK(refused({{"b"}, {"lease", shared}}) == errc{});
    semaphore{locks, "semaphore"}.set_capacity(3);
    CHECK(refused({{"b"}, {"semaphore", shared}}) == errc::invalid_options);
    auto single = locks.acquire_all({{"d", upgradeable}});
    CHECK(single.size() == 1);
    CHECK(mode_lease{std::move(std::move(single).split().front())}.mode() == upgradeable);
    multi_lease none;
    CHECK_FALSE(none.held());
    CHECK(none.size() == 0);
    CHECK_NOTHROW(none.release());
}

ROWLOCK_SIMULATED_CASE(
    "a wait for several modes ends with its time limit or a stop, and leaves no entry", database) {
    client holder{database.source(), database.options()};
    client waiter{database.source(), database.options()};
    client behind{database.source(), sleepy(database)};
    const auto b = shared_mutex{holder, "b"}.acquire(exclusive);
    const auto waiting_reader = [&] {
        return std::async(std::launch::async, [&] {
            return shared_mutex{behind, "a"}.try_acquire_for(shared, support::patience).value();
        });
    };
    const modes wanted{{"a", exclusive}, {"b", shared}};
    std::stop_source stop;
    auto waiting = std::async(std::launch::async, [&] {
        return waiter.try_acquire_all_for(wanted, 20s, stop.get_token());
    });
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    auto reader = waiting_reader();
    REQUIRE(eventually([&] { return entries(database) == 3; }));
    stop.request_stop();
    CHECK_FALSE(waiting.get());
    // Its entry kept the reader waiting.
    CHECK(reader.get().held());
    CHECK_FALSE(waiter.try_acquire_all_for(wanted, 30ms));
    CHECK(eventually([&] { return entries(database) == 0; }));
    CHECK_FALSE(waiter.acquire_all(wanted, stop.get_token()));
}

ROWLOCK_SIMULATED_CASE("after a lost reply all modes are held once, or none of them", database) {
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
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    const std::string_view writes = postgresql ? "multi_take_permits"
                                    : database.speaks() == sql::dialect::mysql ? "transaction"
                                                                               : "commit";
    const std::string_view follows = postgresql ? "flush_commits" : "permits_of";
    const modes wanted{{"a", shared}, {"b", exclusive}};
    locks.acquire_all(wanted).release();
    std::shared_ptr<std::atomic<bool>> lost;
    SUBCASE("of the attempt that took them") {
        lost = lose_first(writes);
        CHECK(locks.acquire_all(wanted).held());
    }
    SUBCASE("of one that was not sent") {
        lost = lose_first(writes, true);
        CHECK(locks.acquire_all(wanted).held());
    }
    SUBCASE("of the statement behind it") {
        lost = lose_first(follows);
        CHECK(locks.acquire_all(wanted).held());
    }
    SUBCASE("of the statement behind it, which was not sent") {
        lost = lose_first(follows, true);
        CHECK(locks.acquire_all(wanted).held());
    }
    SUBCASE("of the turn that came by waiting") {
        client other{database.source(), database.options()};
        auto b = shared_mutex{other, "b"}.acquire(exclusive);
        auto waiting = waits_for(locks, wanted);
        REQUIRE(eventually([&] { return entries(database) == 2; }));
        lost = lose_first(writes);
        b.release();
        REQUIRE(waiting.get());
    }
    SUBCASE("of the entry in the queues") {
        client other{database.source(), database.options()};
        auto b = shared_mutex{other, "b"}.acquire(exclusive);
        lost = lose_first("multi_enqueue");
        auto waiting = waits_for(locks, wanted);
        REQUIRE(eventually([&] { return lost->load(); }));
        // The entries whose outcome was unknown do not keep those of the next attempt waiting.
        b.release();
        REQUIRE(waiting.get());
    }
    CHECK(*lost);
    CHECK(eventually([&] { return entries(database) == 0; }));
    CHECK(eventually([&] { return held(database) == 0; }));
    CHECK(database.number("select count(*) from rowlock_lock where used <> 0") == 0);
}

ROWLOCK_SIMULATED_CASE(
    "a request for modes whose entry is gone, or was served alone, never has a part", database) {
    client locks{database.source(), database.options({.poll_interval = 20ms})};
    client other{database.source(), database.options()};
    auto b = shared_mutex{other, "b"}.acquire(exclusive);
    auto waiting = waits_for(locks, {{"a", shared}, {"b", shared}});
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    const auto first = database.number("select max(grant_id) from rowlock_ticket");
    SUBCASE("one is deleted") {
        database.run("delete from rowlock_ticket where name = 'a'");
    }
    SUBCASE("all are deleted") {
        database.run("delete from rowlock_ticket");
    }
    SUBCASE("one of the modes is granted alone") {
        database.run(
            "update rowlock_lock set used = used + 1, token = token + 1 "
            "where name = 'a'");
        database.run(
            "insert into rowlock_hold (name, grant_id, session, weight, token, acquired_at) "
            "select w.name, w.grant_id, w.session, 1, 9, w.enqueued_at "
            "from rowlock_ticket w where w.name = 'a'");
        database.run("delete from rowlock_ticket where name = 'a'");
    }
    REQUIRE(eventually([&] {
        return entries(database) == 2 &&
               database.number("select max(grant_id) from rowlock_ticket") != first;
    }));
    // What was granted alone is given back.
    CHECK(eventually([&] { return held(database) == 1; }));
    CHECK(waiting.wait_for(0ms) == std::future_status::timeout);
    b.release();
    const auto all = waiting.get();
    REQUIRE(all);
    CHECK(all->held());
    CHECK(held(database) == 2);
}

ROWLOCK_SIMULATED_CASE("a request for several modes outlives the end of its session", database) {
    const support::protocol_connection hand{database};
    client other{database.source(), database.options()};
    auto b = shared_mutex{other, "b"}.acquire(exclusive);
    client locks{database.source(), database.watchful()};
    auto waiting = waits_for(locks, {{"a", shared}, {"b", shared}});
    REQUIRE(eventually([&] { return entries(database) == 2; }));
    const auto old = database.number("select max(session) from rowlock_ticket");
    hand.end(session_id{old});
    REQUIRE(eventually([&] {
        return database.number("select count(*) from rowlock_ticket where session <> " +
                               std::to_string(old)) == 2;
    }));
    b.release();
    CHECK(waiting.get());
}

ROWLOCK_SIMULATED_CASE("modes that dead clients hold are taken back for a request for several",
                       database) {
    const support::protocol_connection hand{database};
    const session_without_client gone{database, hand};
    REQUIRE(hand.leases().sessions().extend(hand.db(), session_id{1}, 1s, soon()));
    client locks{database.source(), database.options()};
    SUBCASE("that waits for them") {
        CHECK(locks.acquire_all({{"a", shared}, {"b", exclusive}}).held());
    }
    SUBCASE("that makes one attempt") {
        CHECK(eventually([&] { return !hand.is_live(session_id{1}); }));
        CHECK(locks.try_acquire_all({{"a", shared}, {"b", exclusive}}));
    }
}

TEST_CASE("an attempt gets the modes of dead clients that another client has just taken back") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const support::protocol_connection hand{database};
        const session_without_client gone{database, hand};
        interception network;
        client locks{network.wrap(database.source()), database.options()};
        network.before([&](std::string_view name) {
            if (name != "permit_holders") return;
            gone.end();
            gone.take_back();
        });
        SUBCASE("several") {
            CHECK(locks.try_acquire_all({{"a", shared}, {"b", exclusive}}));
        }
        SUBCASE("one") {
            CHECK(shared_mutex{locks, "a"}.try_acquire(exclusive));
        }
        network.before({});
    }
}

// On SQLite it waits for that transaction.
TEST_CASE("an attempt gets the modes of dead clients that another transaction takes back") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const support::protocol_connection hand{database};
        const session_without_client gone{database, hand};
        gone.end();
        int looks = 0;  // at the holders of a name
        int locked = 0;
        interception network;
        client locks{network.wrap(database.source()), database.options()};
        network.before([&](std::string_view name) {
            if (name != "permit_holders") return;
            if (looks++ == 0) {
                database.run("begin");
                database.run("delete from rowlock_hold");
            } else if (looks == locked + 1) {
                database.run("update rowlock_lock set used = 0");
                database.run("commit");
            }
        });
        SUBCASE("several") {
            locked = 2;
            CHECK(locks.try_acquire_all({{"a", shared}, {"b", exclusive}}));
        }
        SUBCASE("one") {
            locked = 1;
            CHECK(shared_mutex{locks, "a"}.try_acquire(exclusive));
        }
        network.before({});
        CHECK(looks > locked);
    }
}

TEST_CASE("an attempt that finds modes of dead clients locked for long fails") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const support::protocol_connection hand{database};
        const session_without_client gone{database, hand};
        gone.end();
        database.run("begin");
        database.run("select * from rowlock_hold for update");
        client locks{database.source(), database.options()};
        CHECK_FALSE(locks.try_acquire_all({{"a", shared}, {"b", exclusive}}));
        CHECK_FALSE(shared_mutex{locks, "a"}.try_acquire(exclusive));
        database.run("commit");
        CHECK(locks.try_acquire_all({{"a", shared}, {"b", exclusive}}));
    }
}

ROWLOCK_SIMULATED_CASE("a client takes modes of a dead client back by one thread at a time",
                       database) {
    const support::protocol_connection hand{database};
    const session_without_client gone{database, hand};
    REQUIRE(hand.leases().sessions().extend(hand.db(), session_id{1}, 1ms, soon()));
    const auto here = std::this_thread::get_id();
    std::atomic<bool> thread_of_waiters{false};
    interception network;
    client locks{network.wrap(database.source()), database.options()};
    network.before([&](std::string_view name) {
        if (name == "queues_of_session") thread_of_waiters = true;
        const bool sweeps = name == "sweep_permits" || name == "holds_over";
        if (!sweeps || std::this_thread::get_id() != here) return;
        CHECK_FALSE(eventually([&] { return thread_of_waiters.load(); }, 300ms));
    });
    REQUIRE(eventually([&] { return !hand.is_live(session_id{1}); }));
    CHECK(locks.try_acquire_all({{"a", shared}, {"b", exclusive}}));
    CHECK(eventually([&] { return thread_of_waiters.load(); }));
    network.before({});
}

ROWLOCK_SIMULATED_CASE(
    "the loss of one of several modes is the loss of all, and the others are released", database) {
    client locks{database.source(), database.watchful()};
    client other{database.source(), database.options()};
    auto all = locks.acquire_all({{"a", shared}, {"b", exclusive}});
    REQUIRE(shared_mutex{other, "b"}.force_release(all["b"].token()));
    const auto lost = all.lost();
    REQUIRE(eventually([&] { return lost.stop_requested(); }));
    CHECK_FALSE(all.held());
    CHECK(all["a"].held());
    CHECK_FALSE(all["b"].held());
    CHECK(kind_of([&] { all.release(); }) == errc::lock_lost);
    CHECK(eventually([&] { return held(database) == 0; }));
}

ROWLOCK_SIMULATED_CASE("taken apart, each mode is upgraded, downgraded and released by itself",
                       database) {
    client locks{database.source(), database.options()};
    client other{database.source(), database.options()};
    std::vector<mode_lease> apart;
    for (auto& each : locks.acquire_all({{"a", upgradeable}, {"b", exclusive}}).split()) {
        apart.emplace_back(std::move(each));
    }
    REQUIRE(apart.size() == 2);
    apart[0].upgrade();
    CHECK(apart[0].mode() == exclusive);
    CHECK_FALSE(other.try_acquire_all({{"a", shared}, {"c", shared}}));
    apart[1].downgrade(shared);
    CHECK(other.try_acquire_all({{"b", shared}, {"c", shared}}));
    apart[0].release();
    CHECK(apart[1].held());
    CHECK(other.try_acquire_all({{"a", exclusive}, {"b", shared}}));
}

TEST_CASE("a transaction commits only while all of several modes are held") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        client other{database.source(), database.options()};
        auto all = locks.acquire_all({{"a", shared}, {"b", exclusive}});
        const auto db = database.source().connect(soon());
        const auto fenced = [&] {
            db->query("begin", soon());
            const auto failed = kind_of([&] { fence(*db, all); });
            db->query("rollback", soon());
            return failed;
        };
        CHECK(fenced() == errc{});
        auto reads = std::move(locks.acquire_all({{"c", shared}}).split().front());
        db->query("begin", soon());
        CHECK(kind_of([&] { release_on_commit(*db, reads); }) == errc::invalid_options);
        CHECK(reads.held());
        db->query("commit", soon());
        REQUIRE(shared_mutex{other, "b"}.force_release(all["b"].token()));
        CHECK(fenced() == errc::lock_lost);
        CHECK(kind_of([&] { fence(*db, multi_lease{}); }) == errc::not_owner);
    }
}

TEST_CASE("threads that ask for modes in opposite orders neither wait forever nor overlap") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        constexpr std::size_t many = 6;
        constexpr int turns = 5;
        std::vector<std::unique_ptr<client>> clients;
        for (int i = 0; i < 2; ++i) {
            clients.push_back(std::make_unique<client>(database.source(), database.options()));
        }
        // Readers count by one, a writer by a thousand.
        std::array<std::atomic<int>, 3> inside{};
        std::atomic<int> overlaps{0};
        std::atomic<int> done{0};
        {
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < many; ++i) {
                threads.emplace_back([&, i] {
                    const std::array<std::size_t, 2> wanted{i % 3, (i + 1 + i / 3) % 3};
                    for (int turn = 0; turn < turns; ++turn) {
                        modes all;
                        std::array<int, 2> weight{};
                        for (std::size_t k = 0; k < 2; ++k) {
                            const bool writes = (i + k + static_cast<std::size_t>(turn)) % 2 == 0;
                            weight[k] = writes ? 1000 : 1;
                            all.push_back(
                                {"n" + std::to_string(wanted[k]), writes ? exclusive : shared});
                        }
                        const auto got = clients[i % 2]->acquire_all(all);
                        for (std::size_t k = 0; k < 2; ++k) {
                            const int before = inside[wanted[k]].fetch_add(weight[k]);
                            if (before >= 1000 || (weight[k] == 1000 && before > 0)) ++overlaps;
                        }
                        for (std::size_t k = 0; k < 2; ++k) inside[wanted[k]] -= weight[k];
                        ++done;
                    }
                });
            }
        }
        CHECK(overlaps == 0);
        CHECK(done == static_cast<int>(many) * turns);
        CHECK(eventually([&] { return held(database) == 0 && entries(database) == 0; }));
        CHECK(database.number("select count(*) from rowlock_lock where used <> 0") == 0);
    }
}

TEST_CASE("of two threads that hold a mode each and ask for several, one gives way") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client first{database.source(), database.options({.poll_interval = 50ms})};
        client second{database.source(), database.options({.poll_interval = 50ms})};
        std::atomic<int> holding{0};
        const auto run = [&](client& locks, const char* mine, const modes& wanted) {
            return std::async(std::launch::async, [&, mine, wanted] {
                const auto held = shared_mutex{locks, mine}.acquire(shared);
                ++holding;
                while (holding < 2) std::this_thread::yield();
                return kind_of([&] {
                    static_cast<void>(locks.try_acquire_all_for(wanted, support::patience));
                });
            });
        };
        auto one = run(first, "a", {{"b", exclusive}, {"c", shared}});
        auto two = run(second, "b", {{"a", exclusive}, {"c", shared}});
        const auto failed = std::pair{one.get(), two.get()};
        CHECK(((failed.first == errc::deadlock) != (failed.second == errc::deadlock)));
        CHECK(((failed.first == errc{}) != (failed.second == errc{})));
    }
}

TEST_CASE("a call that waits for several modes gets them once a sole holder of one has ended") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool by_deadline : {true, false}) {
            CAPTURE(by_deadline);
            const support::protocol_connection hand{database};
            hand.open(session_id{1});
            const auto deadline = by_deadline ? std::optional<std::int64_t>{400'000} : std::nullopt;
            REQUIRE(
                hand.acquire("a", session_id{1}, grant_id{11}, {.deadline_us = deadline}).what ==
                protocol::attempt::outcome::granted);
            client waiter{database.source(), database.options({.poll_interval = 50ms})};
            auto waiting = waits_for(waiter, {{"a", shared}, {"b", shared}}, support::patience);
            REQUIRE(eventually([&] { return entries(database) == 2; }));
            if (!by_deadline) hand.leases().sessions().end(hand.db(), session_id{1}, soon());
            CHECK(waiting.get());
            database.run("delete from rowlock_session where id = 1");
        }
    }
}

// shows: promise-13
TEST_CASE("a release by force of a name that readers hold ends nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto held = shared_mutex{locks, "a"}.acquire(shared);
        CHECK_FALSE(locks.force_release("a"));
        CHECK(held.held());
    }
}
