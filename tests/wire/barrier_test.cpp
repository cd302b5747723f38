// Latches and double barriers: each answer is given once, and all that it concerns get the same.

#include "support/child.hpp"
#include "support/cut_off.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/waits.hpp"
#include <rowlock/double_barrier.hpp>
#include <rowlock/latch.hpp>
#include <rowlock/reaper.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
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
using support::cut_off_after_commit;
using support::eventually;
using support::interception;
using support::kind_of;

namespace {

/// Ends the session of a client as another client would that finds it expired.
void end_sessions_of(support::lock_database& database, const client& whose) {
    database.run("update rowlock_session set ended = " +
                 std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                 " where owner = '" + whose.owner() + "'");
}

client_options slow_beats(const support::lock_database& database) {
    return database.options({.ttl = 1h, .heartbeat = 20min, .margin = 5min});
}

}  // namespace

TEST_CASE("a latch holds its waiters back until so many have arrived, generation by generation") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client one{database.source(), database.options()};
        client other{database.source(), database.options()};
        latch here{one, "warm"};
        latch there{other, "warm"};
        CHECK_FALSE(here.inspect());
        CHECK(kind_of([&] { static_cast<void>(here.join()); }) == errc::invalid_options);

        const auto first = here.begin(3);
        REQUIRE(first);
        CHECK_FALSE(there.begin(5));
        std::atomic<int> through{0};
        std::jthread waiter{[&] {
            if (there.wait_for(support::patience)) ++through;
        }};
        auto a = here.join();
        auto b = there.join();
        CHECK(a.generation() == *first);
        CHECK(here.inspect()->registered == 2);
        a.arrive();
        a.arrive();
        b.arrive();
        CHECK_FALSE(here.wait_for(20ms));
        CHECK(through == 0);
        CHECK(here.inspect()->arrived == 2);
        there.count_down();
        waiter.join();
        CHECK(through == 1);
        CHECK(here.wait_for(0ms));
        CHECK(here.inspect()->state == latch_state::open);
        here.count_down();
        here.join().arrive();

        const auto second = there.begin(1);
        REQUIRE(second);
        CHECK(*second > *first);
        CHECK_FALSE(here.wait_for(0ms));
        // The answer of the first stays.
        CHECK(here.wait_for(0ms, {}, *first));
        CHECK_FALSE(here.wait_for(0ms, {}, *second));
        here.count_down();
        CHECK(there.wait_for(0ms));
    }
}

ROWLOCK_SIMULATED_CASE("a waiter may come before the first generation, and a stop ends its wait",
                       database) {
    client locks{database.source(), database.options()};
    latch gate{locks, "gate"};
    CHECK_FALSE(gate.wait_for(10ms));
    std::stop_source stop;
    stop.request_stop();
    CHECK_FALSE(gate.wait(stop.get_token()));
    std::jthread waiter{[&] { CHECK(gate.wait_for(support::patience)); }};
    REQUIRE(gate.begin(1));
    gate.count_down();
    waiter.join();
    REQUIRE(gate.begin(1));
    CHECK(gate.reset());
    CHECK_FALSE(gate.reset());
    CHECK(kind_of([&] { gate.wait(); }) == errc::broken);
    CHECK(kind_of([&] { gate.count_down(); }) == errc::broken);
    CHECK(gate.begin(1));
}

TEST_CASE("a party whose client's session was ended joins, or enters, in a new one") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), slow_beats(database)};
        const auto live_parties = [&] {
            return database.number(
                "select count(*) from rowlock_party p join rowlock_session m on m.id = p.session "
                "where p.stage < 2 and " +
                std::string{database.speaks() == sql::dialect::postgresql ? "not m.ended"
                                                                          : "m.ended = 0"});
        };
        const auto end_session = [&] {
            static_cast<void>(locks.try_acquire("job"));  // opens one
            end_sessions_of(database, locks);
        };
        end_session();
        latch gate{locks, "gate"};
        REQUIRE(gate.begin(1));
        const auto party = gate.join();
        CHECK(live_parties() == 1);
        end_session();
        double_barrier both{locks, "both", 1};
        const auto inside = both.enter();
        CHECK(live_parties() == 1);  // of the barrier
    }
}

// shows: promise-18
ROWLOCK_SIMULATED_CASE("a party that is lost before it arrived breaks its latch, or counts",
                       database) {
    client waiting{database.source(), database.options()};
    latch gate{waiting, "gate"};
    for (const auto on_loss : {party_loss::breaks, party_loss::counts}) {
        CAPTURE(static_cast<int>(on_loss));
        const auto answer = [&] { return kind_of([&] { gate.wait(); }); };
        const auto opens = on_loss == party_loss::counts;
        // Its process dies: the session is over.
        {
            client dies{database.source(), slow_beats(database)};
            REQUIRE(gate.begin(1, {.on_loss = on_loss}));
            latch_party mine = latch{dies, "gate"}.join();
            CHECK_FALSE(gate.wait_for(20ms));
            end_sessions_of(database, dies);
            if (opens) {
                CHECK_NOTHROW(gate.wait());
            } else {
                CHECK(answer() == errc::broken);
                CHECK(kind_of([&] { mine.arrive(); }) == errc::broken);
            }
        }
        // Its client is destroyed.
        REQUIRE(gate.begin(1, {.on_loss = on_loss}));
        std::optional<client> leaves;
        leaves.emplace(database.source(), database.options());
        std::optional<latch_party> inert{latch{*leaves, "gate"}.join()};
        leaves.reset();
        if (opens) {
            CHECK_NOTHROW(gate.wait());
        } else {
            CHECK(answer() == errc::broken);
        }
        inert.reset();
        // It is destroyed, as by an exception.
        REQUIRE(gate.begin(1, {.on_loss = on_loss}));
        { const auto gone = gate.join(); }
        CHECK(gate.inspect()->state == (opens ? latch_state::open : latch_state::broken));
        // The control: one that has arrived may vanish.
        REQUIRE(gate.begin(2, {.on_loss = on_loss}));
        {
            client arrives{database.source(), database.options()};
            latch{arrives, "gate"}.join().arrive();
        }
        CHECK_FALSE(gate.wait_for(20ms));
        gate.count_down();
        CHECK_NOTHROW(gate.wait());
    }
}

ROWLOCK_SIMULATED_CASE("a session that expired is ended before its parties are lost", database) {
    interception network;
    client dies{network.wrap(database.source()), slow_beats(database)};
    client waiting{database.source(), database.options()};
    latch gate{waiting, "gate"};
    REQUIRE(gate.begin(1));
    const auto mine = latch{dies, "gate"}.join();
    network.before([](std::string_view) { interception::refuse_to_send(); });
    database.run("update rowlock_session set expires_at = opened_at where owner = '" +
                 dies.owner() + "'");
    CHECK(kind_of([&] { gate.wait(); }) == errc::broken);
    CHECK(database.number("select count(*) from rowlock_session where " +
                          std::string{database.speaks() == sql::dialect::postgresql ? "not ended"
                                                                                    : "ended = 0"} +
                          " and owner = '" + dies.owner() + "'") == 0);
    network.before({});
}

ROWLOCK_SIMULATED_CASE("what was done by a call whose reply was lost is not done again", database) {
    interception network;
    client locks{network.wrap(database.source()), slow_beats(database)};
    static_cast<void>(locks.acquire("open a session"));
    latch gate{locks, "gate"};
    double_barrier meeting{locks, "meeting", 2};
    int lost = 0;
    const auto losing = [&](const auto& call) {
        bool done = false;
        network.after([&](std::string_view what) {
            if (what != "commit" || std::exchange(done, true)) return;
            ++lost;
            interception::lose_reply();
        });
        call();
        network.after({});
    };
    losing([&] { CHECK(gate.begin(3)); });
    CHECK_FALSE(gate.begin(3));
    std::optional<latch_party> mine;
    losing([&] { mine.emplace(gate.join()); });
    CHECK(gate.inspect()->registered == 1);
    losing([&] { mine->arrive(); });
    CHECK(gate.inspect()->arrived == 1);
    gate.count_down();
    CHECK(gate.inspect()->state == latch_state::closed);
    losing([&] { CHECK_FALSE(meeting.enter_for(0ms)); });
    CHECK(meeting.inspect()->entered == 0);
    CHECK(lost == 4);
}

TEST_CASE("parties of a double barrier begin together, and end together") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        constexpr int parties = 3;
        std::vector<std::unique_ptr<client>> clients;
        for (int i = 0; i < parties; ++i) {
            clients.push_back(std::make_unique<client>(database.source(), database.options()));
        }
        std::atomic<int> coming{0};
        std::atomic<int> inside{0};
        std::atomic<int> leaving{0};
        std::atomic<int> early{0};
        {
            std::vector<std::jthread> all;
            for (int i = 0; i < parties; ++i) {
                all.emplace_back([&, i] {
                    double_barrier step{*clients[static_cast<std::size_t>(i)], "step", parties};
                    for (int round = 1; round <= 2; ++round) {
                        ++coming;
                        auto mine = step.enter();
                        if (coming < round * parties) ++early;
                        ++inside;
                        ++leaving;
                        mine.leave();
                        if (leaving < round * parties) ++early;
                    }
                });
            }
        }
        CHECK(early == 0);
        CHECK(inside == 2 * parties);
        double_barrier step{*clients.front(), "step", parties};
        CHECK(step.inspect()->state == barrier_state::empty);
        CHECK(database.number("select count(*) from rowlock_party") == 0);
    }
}

ROWLOCK_SIMULATED_CASE(
    "an entry whose time is up is taken back, unless the barrier opened at that moment", database) {
    interception network;
    client locks{network.wrap(database.source()), database.options()};
    client other{database.source(), database.options()};
    double_barrier here{locks, "step", 2};
    double_barrier there{other, "step", 2};
    CHECK_FALSE(here.enter_for(10ms));
    CHECK(here.inspect()->entered == 0);
    CHECK(here.inspect()->state == barrier_state::filling);

    // Forced: the last one enters between the last look and the withdrawal.
    std::optional<barrier_party> last;
    bool entered = false;
    bool done = false;
    network.before([&](std::string_view what) {
        entered = entered || what == "insert_party";
        const bool withdraws = entered && what.starts_with("begin");
        if (!withdraws || std::exchange(done, true)) return;
        last = there.enter_for(20s);
    });
    auto mine = here.enter_for(10ms);
    network.before({});
    REQUIRE(done);
    REQUIRE(last);
    REQUIRE(mine);
    CHECK(mine->generation() == last->generation());
    CHECK_FALSE(last->leave_for(10ms));
    mine->leave();
    CHECK(last->leave_for(20s));

    // Another begins the next generation.
    CHECK_FALSE(there.enter_for(10ms));
}

ROWLOCK_SIMULATED_CASE(
    "a party that is lost inside a double barrier breaks what is to come, or counts", database) {
    client stays{database.source(), slow_beats(database)};
    for (const auto on_loss : {party_loss::breaks, party_loss::counts}) {
        CAPTURE(static_cast<int>(on_loss));
        const bool breaks = on_loss == party_loss::breaks;
        const barrier_options options{.on_loss = on_loss};
        const std::string name = breaks ? "breaks" : "counts";
        // Before it opens.
        {
            client dies{database.source(), slow_beats(database)};
            double_barrier here{stays, name, 2, options};
            double_barrier there{dies, name, 2, options};
            std::jthread enters{[&](const std::stop_token& stop) {
                try {
                    static_cast<void>(there.enter(stop));
                } catch (const error&) {
                    // It is broken.
                }
            }};
            REQUIRE(eventually([&] {
                const auto seen = here.inspect();
                return seen && seen->entered == 1;
            }));
            const auto first = here.inspect()->generation;
            end_sessions_of(database, dies);
            // The next to enter does not open it with a lost party, and begins another one.
            CHECK(here.enter_for(breaks ? 10ms : 20s).has_value() != breaks);
            // Its parties may have departed by now.
            const auto state = here.inspect(first)->state;
            CHECK((state == barrier_state::broken) == breaks);
            CHECK(state != barrier_state::filling);
        }
        // After it opened: the first answer stays, the second is broken, or given.
        client dies{database.source(), slow_beats(database)};
        double_barrier here{stays, name, 2, options};
        double_barrier there{dies, name, 2, options};
        std::optional<barrier_party> lost;
        std::jthread enters{[&](const std::stop_token& stop) { lost = there.enter(stop); }};
        auto mine = here.enter();
        enters.join();
        REQUIRE(lost);
        CHECK_FALSE(mine.leave_for(10ms));
        end_sessions_of(database, dies);
        if (breaks) {
            CHECK(kind_of([&] { mine.leave(); }) == errc::broken);
            CHECK(kind_of([&] { lost->leave(); }) == errc::broken);
            CHECK(here.inspect()->state == barrier_state::broken);
        } else {
            CHECK_NOTHROW(mine.leave());
            CHECK_NOTHROW(lost->leave());
        }
        // The next generation does not suffer from it.
        CHECK_FALSE(here.enter_for(10ms));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a join or an entry that failed is taken back by the heartbeat, and is no loss", database) {
    interception network;
    client locks{
        network.wrap(database.source()),
        database.options(
            {.ttl = 1min, .heartbeat = 20s, .statement_timeout = 10s, .retry = {.attempts = 2}})};
    client other{database.source(), database.options()};
    static_cast<void>(locks.acquire("open a session"));
    double_barrier here{locks, "step", 2};
    double_barrier there{other, "step", 2};
    latch gate{locks, "gate"};
    REQUIRE(gate.begin(2, {.on_loss = party_loss::counts}));
    // Within a second or two, not with the next regular heartbeat.
    const auto soon_gone = [](const auto& gone) {
        const auto start = std::chrono::steady_clock::now();
        return eventually(gone) && std::chrono::steady_clock::now() - start < 10s;
    };
    REQUIRE(cut_off_after_commit(network, [&] { static_cast<void>(here.enter_for(1s)); }));
    CHECK(soon_gone([&] { return there.inspect()->entered == 0; }));
    CHECK_FALSE(there.enter_for(10ms));
    REQUIRE(cut_off_after_commit(network, [&] { static_cast<void>(gate.join()); }));
    CHECK(soon_gone([&] { return gate.inspect()->registered == 0; }));
    CHECK(gate.inspect()->arrived == 0);
}

ROWLOCK_SIMULATED_CASE(
    "an arrival whose reply was lost does not count in the next generation as well", database) {
    interception network;
    client locks{network.wrap(database.source()), slow_beats(database)};
    client other{database.source(), database.options()};
    static_cast<void>(locks.acquire("open a session"));
    latch here{locks, "gate"};
    latch there{other, "gate"};
    REQUIRE(here.begin(1));
    std::optional<std::int64_t> next;
    network.after([&](std::string_view what) {
        if (what != "commit" || next) return;
        next = there.begin(2);
        interception::lose_reply();
    });
    here.count_down();
    REQUIRE(next);
    CHECK(there.inspect(*next)->arrived == 0);
    // Nor does a reset break the next.
    next.reset();
    network.after([&](std::string_view what) {
        if (what != "commit" || next) return;
        next = there.begin(2);
        interception::lose_reply();
    });
    CHECK(here.reset());
    REQUIRE(next);
    CHECK(there.inspect(*next)->state == latch_state::closed);
    network.after({});
}

ROWLOCK_SIMULATED_CASE(
    "a latch does not open beside a party that was lost long ago, and a new one begins", database) {
    client locks{database.source(), database.options()};
    latch gate{locks, "gate"};
    {
        client dies{database.source(), slow_beats(database)};
        REQUIRE(gate.begin(2));
        const auto lost = latch{dies, "gate"}.join();
        gate.count_down();
        end_sessions_of(database, dies);
        // No client has waited. The last arrival opens nothing.
        CHECK(kind_of([&] { gate.count_down(); }) == errc::broken);
    }
    {
        client dies{database.source(), slow_beats(database)};
        REQUIRE(gate.begin(1));
        const auto lost = latch{dies, "gate"}.join();
        end_sessions_of(database, dies);
        CHECK(gate.begin(1));
    }
    // The same by a party: what it reports is what it has written.
    gate.count_down();
    for (const auto on_loss : {party_loss::breaks, party_loss::counts}) {
        client dies{database.source(), slow_beats(database)};
        REQUIRE(gate.begin(2, {.on_loss = on_loss}));
        const auto lost = latch{dies, "gate"}.join();
        auto mine = gate.join();
        gate.count_down();
        end_sessions_of(database, dies);
        if (on_loss == party_loss::breaks) {
            CHECK(kind_of([&] { mine.arrive(); }) == errc::broken);
            CHECK(gate.inspect()->state == latch_state::broken);
        } else {
            CHECK_NOTHROW(mine.arrive());
            CHECK(gate.inspect()->state == latch_state::open);
        }
    }
}

ROWLOCK_SIMULATED_CASE(
    "a stop during a retry does not take a party out of a barrier that opened with it", database) {
    interception network;
    client locks{network.wrap(database.source()), slow_beats(database)};
    client other{database.source(), database.options()};
    static_cast<void>(locks.acquire("open a session"));
    double_barrier here{locks, "step", 2};
    double_barrier there{other, "step", 2};
    std::optional<barrier_party> first;
    std::jthread enters{[&] { first = there.enter_for(20s); }};
    REQUIRE(eventually([&] {
        const auto seen = there.inspect();
        return seen && seen->entered == 1;
    }));
    std::stop_source stop;
    bool lost = false;
    network.after([&](std::string_view what) {
        if (what != "commit" || std::exchange(lost, true)) return;
        stop.request_stop();
        interception::lose_reply();
    });
    const auto mine = here.enter(stop.get_token());
    network.after({});
    enters.join();
    REQUIRE(lost);
    REQUIRE(first);
    CHECK(mine);
    CHECK(there.inspect()->left == 0);
}

ROWLOCK_SIMULATED_CASE(
    "a generation that has not begun is waited for, one that was deleted is broken", database) {
    client locks{database.source(), database.options()};
    latch gate{locks, "gate"};
    const auto first = *gate.begin(1);
    gate.count_down();
    CHECK_FALSE(gate.wait_for(20ms, {}, first + 1));
    CHECK(kind_of([&] { gate.wait(-1); }) == errc::broken);
}

TEST_CASE("in a forked child the objects of the parent are inert") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        latch gate{locks, "gate"};
        double_barrier step{locks, "step", 2};
        REQUIRE(gate.begin(2));
        std::optional<latch_party> mine{gate.join()};
        CHECK(support::is_true_in_child([&] {
            const auto refused = [](const std::function<void()>& call) {
                return kind_of(call) == errc::wrong_process;
            };
            const bool all = refused([&] { static_cast<void>(gate.join()); }) &&
                             refused([&] { gate.count_down(); }) && refused([&] { gate.wait(); }) &&
                             refused([&] { static_cast<void>(gate.begin(1)); }) &&
                             refused([&] { static_cast<void>(gate.reset()); }) &&
                             refused([&] { mine->arrive(); }) &&
                             refused([&] { static_cast<void>(step.enter()); });
            mine.reset();
            return all;
        }));
        CHECK(gate.inspect()->registered == 1);
        mine->arrive();
        CHECK(gate.inspect()->arrived == 1);
    }
}

ROWLOCK_SIMULATED_CASE("what does not fit a name, or was begun otherwise, is refused", database) {
    client locks{database.source(), database.options()};
    REQUIRE(latch{locks, "gate"}.begin(2));
    double_barrier wrong{locks, "gate", 2};
    CHECK(kind_of([&] { static_cast<void>(wrong.enter()); }) == errc::invalid_options);
    CHECK(kind_of([&] { static_cast<void>(wrong.inspect()); }) == errc::invalid_options);
    CHECK(kind_of([&] { static_cast<void>(wrong.reset()); }) == errc::invalid_options);

    client other{database.source(), database.options()};
    double_barrier three{other, "step", 3};
    std::optional<barrier_party> first;
    std::jthread waits{[&](const std::stop_token& stop) { first = three.enter(stop); }};
    REQUIRE(eventually([&] {
        const auto seen = three.inspect();
        return seen && seen->entered == 1;
    }));
    for (auto otherwise : {double_barrier{locks, "step", 2},
                           double_barrier{locks, "step", 3, {.on_loss = party_loss::counts}}}) {
        CHECK(kind_of([&] { static_cast<void>(otherwise.enter()); }) == errc::invalid_options);
    }
    CHECK(three.inspect()->entered == 1);
    waits.request_stop();
    waits.join();
    CHECK_FALSE(first);
    // Once no party of other terms waits, new ones hold.
    CHECK_FALSE(double_barrier{locks, "step", 2}.enter_for(10ms));
    CHECK(three.inspect()->parties == 2);

    latch not_one{locks, "step"};
    CHECK(kind_of([&] { static_cast<void>(not_one.begin(1)); }) == errc::invalid_options);
    CHECK(kind_of([&] { static_cast<void>(not_one.join()); }) == errc::invalid_options);
    CHECK(kind_of([&] { not_one.count_down(); }) == errc::invalid_options);
    latch gate{locks, "gate"};
    for (const std::int64_t count : {0, -1, 1'000'001}) {
        CHECK(kind_of([&] { static_cast<void>(gate.begin(count)); }) == errc::invalid_options);
        CHECK(kind_of([&] { double_barrier{locks, "step", count}; }) == errc::invalid_options);
    }
}

TEST_CASE("the reaper deletes generations that were over long ago, and numbers rise all the same") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        latch gate{locks, "gate"};
        latch pending{locks, "pending"};
        std::int64_t last = 0;
        for (int i = 0; i < 3; ++i) {
            last = *gate.begin(1);
            gate.count_down();
        }
        REQUIRE(pending.begin(1));
        const auto age = [&](const char* what) {
            database.run("update rowlock_barrier set changed_at = changed_at - " +
                         std::string{database.speaks() == sql::dialect::postgresql
                                         ? "interval '2 hours'"
                                         : "7200000000"} +
                         " where " + what);
        };
        const auto reaped = [&] {
            return reap(database.source(), database.reaping(1h, 10min)).rounds_deleted;
        };
        CHECK(reaped() == 0);
        const auto first = last - 2;
        age(("generation = " + std::to_string(first)).c_str());
        CHECK(reaped() == 1);
        CHECK(kind_of([&] { gate.wait(first); }) == errc::broken);
        CHECK(gate.wait_for(0ms, {}, last));
        age("name <> ''");
        CHECK(reaped() == 2);
        CHECK_FALSE(gate.inspect());
        CHECK(pending.inspect()->state == latch_state::closed);
        CHECK(kind_of([&] { gate.wait(last); }) == errc::broken);
        CHECK(*gate.begin(1) > last);
        // It applies losses that no client has looked for, and deletes the rest another time.
        {
            client dies{database.source(), slow_beats(database)};
            const auto lost = latch{dies, "pending"}.join();
            end_sessions_of(database, dies);
            age("name = 'pending'");
            CHECK(reaped() == 0);
            CHECK(pending.inspect()->state == latch_state::broken);
        }
        age("name = 'pending'");
        CHECK(reaped() == 1);
        CHECK_FALSE(pending.inspect());
    }
}

ROWLOCK_SIMULATED_CASE("a destroyed client ends the waits of its threads", database) {
    interception network;
    auto locks = std::make_unique<client>(network.wrap(database.source()), database.options());
    latch gate{*locks, "gate"};
    REQUIRE(gate.begin(1));
    std::atomic<int> looks{0};
    network.after([&](std::string_view what) {
        if (what == "look_at_round") ++looks;
    });
    std::optional<errc> why;
    std::jthread waiter{[&](const std::stop_token& stop) {
        why = kind_of([&] { static_cast<void>(gate.wait(stop)); });
    }};
    REQUIRE(eventually([&] { return looks > 1; }));
    locks.reset();
    waiter.join();
    CHECK(why == errc::lock_lost);
}
