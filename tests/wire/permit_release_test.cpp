// Permits and modes that an operator asks for or takes: the holder learns of it, what its
// transactions do from then on, and the next grant.
// shows: fault-break, fault-break-now

#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/last_held.hpp"
#include "support/lock_database.hpp"
#include "support/waits.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using support::last_held;
using support::soon;
using enum lock_mode;

namespace {

/// Whether the counters of all semaphores are the sums of their holds.
bool counts(support::lock_database& database) {
    return database.number(
               "select count(*) from rowlock_lock p where p.used <> (select "
               "coalesce(sum(s.weight), 0) from rowlock_hold s where s.name = p.name)") == 0;
}

/// Of a holder that learns of a change soon, and that no pause ends.
client_options patient() {
    return {.ttl = 20s, .heartbeat = 100ms};
}

}  // namespace

TEST_CASE("permits that are asked for end alone, and come back when their holder has stopped") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client asking{database.source(), database.options()};
        semaphore theirs{holder, "api"};
        semaphore ours{asking, "api"};
        theirs.set_capacity(3);
        auto held = theirs.acquire(2);
        const auto bystander = theirs.acquire();
        const auto lost = held.lost();

        const auto left = ours.request_release(held.token());
        REQUIRE(left);
        CHECK(*left > 10s);
        CHECK(*left <= 20s);
        CHECK(eventually([&] { return lost.stop_requested(); }));
        CHECK(bystander.held());
        CHECK_FALSE(ours.try_acquire());  // the holder has not stopped
        CHECK(kind_of([&] { held.release(); }) == errc::lock_lost);
        CHECK(ours.try_acquire_for(2, support::patience).has_value());
        CHECK(bystander.held());
        CHECK_FALSE(ours.request_release(held.token()));
        CHECK(counts(database));
    }
}

ROWLOCK_SIMULATED_CASE(
    "permits of a holder that does not stop when asked come back with its session's time",
    database) {
    client holder{database.source(),
                  database.options({.ttl = 7s, .heartbeat = 100ms, .margin = 4s})};
    client asking{database.source(), database.options()};
    shared_mutex theirs{holder, "page"};
    shared_mutex ours{asking, "page"};
    const auto reading = theirs.acquire(shared);
    const auto asked = std::chrono::steady_clock::now();
    REQUIRE(ours.request_release(reading.token()));
    const auto held = last_held(reading, asked);
    const auto writing = ours.try_acquire_for(exclusive, support::patience);
    REQUIRE(writing);
    CHECK(std::chrono::steady_clock::now() - held >= 2s);
    CHECK(counts(database));
}

TEST_CASE(
    "permits that are taken are free at once, for the first waiter, and their holder learns") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options({.ttl = 20s})};
        semaphore theirs{holder, "api"};
        semaphore ours{other, "api"};
        theirs.set_capacity(2);
        const auto held = theirs.acquire(2);
        const auto lost = held.lost();
        auto waiting = std::async(std::launch::async,
                                  [&] { return ours.try_acquire_for(2, support::patience); });
        REQUIRE(eventually([&] { return ours.waiters().size() == 1; }));
        CHECK(ours.waiters().front().permits == 2);

        CHECK_FALSE(ours.force_release(fencing_token{held.token().value() + 1}));
        CHECK(held.held());
        CHECK(ours.force_release(held.token()));
        CHECK_FALSE(ours.force_release(held.token()));
        const auto next = waiting.get();
        REQUIRE(next);
        CHECK(next->token() > held.token());
        CHECK(eventually([&] { return lost.stop_requested(); }));
        CHECK(ours.inspect()->used == 2);
        CHECK(counts(database));
    }
}

TEST_CASE("one reader's hold is taken, and the others read on") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options()};
        shared_mutex theirs{holder, "page"};
        shared_mutex ours{other, "page"};
        const auto first = theirs.acquire(shared);
        const auto second = theirs.acquire(shared);
        CHECK(ours.force_release(first.token()));
        CHECK(eventually([&] { return !first.held(); }));
        CHECK(second.held());
        CHECK(ours.inspect()->shared == 1);
        CHECK(counts(database));
    }
}

TEST_CASE("an upgraded hold is asked for, and taken, as a whole") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client other{database.source(), database.options()};
        shared_mutex theirs{holder, "page"};
        shared_mutex ours{other, "page"};
        for (const auto from : {upgradeable, shared}) {
            CAPTURE(to_string(from));
            auto writing = theirs.acquire(from);
            REQUIRE(writing.try_upgrade());
            const auto seen = ours.holders();
            REQUIRE(seen.size() == 1);
            CHECK(seen.front().mode == exclusive);
            bool taken = false;
            SUBCASE("asked for") {
                REQUIRE(ours.request_release(seen.front().token));
                CHECK(eventually([&] { return writing.lost().stop_requested(); }));
                writing = mode_lease{};
            }
            SUBCASE("taken") {
                REQUIRE(ours.force_release(seen.front().token));
                taken = true;
            }
            const auto next = ours.try_acquire_for(exclusive, support::patience);
            REQUIRE(next);
            if (taken) CHECK(eventually([&] { return !writing.held(); }));
            CHECK(counts(database));
        }
    }
}

// The holder does not know yet: its client would believe the upgrade.
ROWLOCK_SIMULATED_CASE(
    "a hold that is ended by force while it is upgraded does not become exclusive; one that is "
    "asked "
    "for is, and ends",
    database) {
    interception network;
    client holder{network.wrap(database.source()), database.options({.ttl = 60s, .heartbeat = 1s})};
    client other{database.source(), database.options()};
    shared_mutex theirs{holder, "page"};
    shared_mutex ours{other, "page"};
    auto hold = theirs.acquire(upgradeable);
    const auto token = hold.token();
    bool asks = false;
    bool during = false;
    SUBCASE("by force, before") {}
    SUBCASE("by force, while it waits for a reader") {
        during = true;
    }
    SUBCASE("asked for, between the look and the grant") {
        asks = true;
    }
    const auto act = [&] {
        if (asks) {
            REQUIRE(ours.request_release(token));
        } else {
            REQUIRE(ours.force_release(token));
        }
    };
    if (asks) {
        bool done = false;
        network.before([&](std::string_view name) {
            if (name == "upgrade_lock" && !std::exchange(done, true)) act();
        });
        CHECK(kind_of([&] { hold.upgrade(); }) == errc{});
        CHECK(done);
        CHECK(eventually([&] { return hold.lost().stop_requested(); }));
    } else if (during) {
        const auto reading = ours.acquire(shared);
        auto upgrading = std::async(std::launch::async, [&] {
            return kind_of([&] { static_cast<void>(hold.try_upgrade_for(support::patience)); });
        });
        REQUIRE(eventually([&] { return ours.waiters().size() == 1; }));
        act();
        CHECK(ours.try_acquire_for(shared, support::patience).has_value());
        CHECK(upgrading.get() == errc::lock_lost);
        CHECK(reading.held());
    } else {
        const auto reading = ours.acquire(shared);
        act();
        CHECK(kind_of([&] { static_cast<void>(hold.try_upgrade()); }) == errc::lock_lost);
        CHECK(hold.mode() == upgradeable);
        CHECK(reading.held());
    }
    hold = mode_lease{};
    CHECK(ours.try_acquire_for(exclusive, support::patience).has_value());
    CHECK(counts(database));
}

TEST_CASE("the token of a hold from before its upgrade ends the whole of it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options({.ttl = 60s, .heartbeat = 20s})};
        client other{database.source(), database.options()};
        shared_mutex theirs{holder, "page"};
        shared_mutex ours{other, "page"};
        auto hold = theirs.acquire(upgradeable);
        const auto before = hold.token();
        REQUIRE(hold.try_upgrade());
        SUBCASE("upgraded") {}
        SUBCASE("upgraded, then downgraded") {
            hold.downgrade(upgradeable);
        }
        CHECK(ours.holders().size() == 1);
        CHECK(ours.force_release(before));
        CHECK(ours.holders().empty());
        CHECK(ours.try_acquire(exclusive).has_value());
        CHECK(counts(database));
    }
}

TEST_CASE("a request for a hold that is downgraded meanwhile is for what is left of it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        shared_mutex theirs{holder, "page"};
        auto hold = theirs.acquire(upgradeable);
        hold.upgrade();
        const auto token = hold.token();
        interception network;
        bool done = false;
        network.after([&](std::string_view name) {
            if (name == "hold_to_end" && !std::exchange(done, true)) hold.downgrade(upgradeable);
        });
        client other{network.wrap(database.source()), database.options()};
        shared_mutex ours{other, "page"};
        CHECK(ours.request_release(token));
        CHECK(eventually([&] { return !hold.held(); }));
    }
}

// shows: promise-12
ROWLOCK_SIMULATED_CASE(
    "a hold with a deadline of its own is extended, and not past a request for its release",
    database) {
    client holder{database.source(), database.options({.ttl = 60s, .heartbeat = 20s})};
    client other{database.source(), database.options()};
    semaphore theirs{holder, "api"};
    semaphore ours{other, "api"};
    theirs.set_capacity(2);
    auto brief = theirs.acquire(1, {.max_duration = 3s});
    auto held = theirs.acquire(1, {.max_duration = 20s});
    held.extend(1h);
    CHECK(held.remaining() > 20s);
    CHECK(held.held());
    held.extend(5s);  // never earlier
    CHECK(held.remaining() > 20s);
    CHECK(kind_of([&] { held.extend(0s); }) == errc::invalid_options);
    CHECK(eventually([&] { return !brief.held(); }));
    CHECK(kind_of([&] { brief.extend(1h); }) == errc::lock_lost);
    CHECK(held.held());
    CHECK(ours.try_acquire_for(1, support::patience).has_value());  // that of the brief hold
    CHECK(ours.holders().size() == 1);

    // A deadline of an hour is later than the session's: so the request shortens it.
    const auto left = ours.request_release(held.token());
    REQUIRE(left);
    CHECK(kind_of([&] { held.extend(2h); }) == errc::lock_lost);
    const auto after = ours.holders();
    REQUIRE(after.size() == 1);
    CHECK(after[0].who.remaining <= *left);

    auto endless = ours.acquire();
    CHECK(kind_of([&] { endless.extend(1h); }) == errc::invalid_options);
    CHECK(kind_of([&] { permits{}.extend(1h); }) == errc::not_owner);
    CHECK(counts(database));
}

// Then the request moves no deadline.
ROWLOCK_SIMULATED_CASE(
    "a hold whose own deadline comes before its session's end is not extended past a request",
    database) {
    client holder{database.source(), database.options({.ttl = 60s, .heartbeat = 20s})};
    client other{database.source(), database.options()};
    semaphore theirs{holder, "api"};
    semaphore ours{other, "api"};
    theirs.set_capacity(1);
    auto held = theirs.acquire(1, {.max_duration = 20s});
    held.extend(25s);
    const auto left = ours.request_release(held.token());
    REQUIRE(left);
    CHECK(*left <= 25s);
    CHECK(kind_of([&] { held.extend(40s); }) == errc::invalid_options);
    CHECK(held.held());
    CHECK(kind_of([&] { held.extend(40s); }) == errc::invalid_options);
    const auto after = ours.holders();
    REQUIRE(after.size() == 1);
    CHECK(after[0].who.remaining <= *left);
    CHECK(eventually([&] { return held.lost().stop_requested(); }, support::patience));
}

TEST_CASE(
    "a restarted process takes over permits and modes of its predecessor, upgrades included") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        auto before = std::make_unique<client>(
            database.source(), database.options({.ttl = 20s, .heartbeat = 200ms, .owner = "me"}));
        semaphore api{*before, "api"};
        api.set_capacity(5);
        shared_mutex page{*before, "page"};
        shared_mutex index{*before, "index"};
        const auto three = api.acquire(3);
        const auto lease = before->acquire("job");
        auto writing = page.acquire(upgradeable);
        writing.upgrade();
        const auto reading = index.acquire(shared);
        const auto also_reading = index.acquire(shared);

        client after{database.source(),
                     database.options({.ttl = 20s, .heartbeat = 200ms, .owner = "me"})};
        auto taken = after.reclaim();
        REQUIRE(taken.leases.size() == 1);
        REQUIRE(taken.of_semaphores.size() == 1);
        CHECK(taken.of_semaphores[0].count() == 3);
        CHECK(taken.of_semaphores[0].held());
        CHECK(taken.of_semaphores[0].token() > three.token());
        REQUIRE(taken.of_shared_mutexes.size() == 3);
        for (auto& each : taken.of_shared_mutexes) {
            CAPTURE(each.name());
            CHECK(each.held());
            CHECK(each.mode() == (each.name() == "page" ? exclusive : shared));
            if (each.name() == "page") CHECK(each.token() > writing.token());
        }
        client other{database.source(), database.options()};
        CHECK_FALSE((shared_mutex{other, "page"}.try_acquire(shared)));
        CHECK_FALSE((semaphore{other, "api"}.try_acquire(3)));
        CHECK(eventually([&] { return !three.held() && !writing.held(); }));
        taken = {};
        CHECK((shared_mutex{other, "page"}.try_acquire(exclusive).has_value()));
        CHECK((shared_mutex{other, "index"}.try_acquire(exclusive).has_value()));
        CHECK((semaphore{other, "api"}.try_acquire(5).has_value()));
        CHECK(counts(database));
    }
}

TEST_CASE("a fence fails once the permits were taken, and one that was there first is waited for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client holder{database.source(), database.options({.ttl = 20s, .heartbeat = 5s})};
        client other{database.source(), database.options({.statement_timeout = 20s})};
        semaphore theirs{holder, "api"};
        semaphore ours{other, "api"};
        theirs.set_capacity(1);
        const auto held = theirs.acquire();
        const auto db = database.source().connect(soon());
        db->query("begin", soon());
        fence(*db, held);
        auto taken =
            std::async(std::launch::async, [&] { return ours.force_release(held.token()); });
        REQUIRE(support::somebody_waits_for_a_row(database));
        CHECK_FALSE(ours.try_acquire());
        db->query("commit", soon());
        CHECK(taken.get());
        CHECK(ours.try_acquire().has_value());

        db->query("begin", soon());
        CHECK(kind_of([&] { fence(*db, held); }) == errc::lock_lost);
        db->query("rollback", soon());
    }
}

ROWLOCK_SIMULATED_CASE(
    "a release that comes before the permits are taken is not undone, and counted once", database) {
    client holder{database.source(), database.options(patient())};
    semaphore theirs{holder, "api"};
    theirs.set_capacity(2);
    std::optional<permits> held{theirs.acquire(2)};
    const auto token = held->token();
    std::optional<permits> next;
    interception network;
    network.after([&](std::string_view name) {
        if (name != "hold_to_end" || !held) return;
        held->release();
        held.reset();
        next = theirs.acquire();
    });
    client other{network.wrap(database.source()), database.options()};
    semaphore ours{other, "api"};
    SUBCASE("force_release") {
        CHECK_FALSE(ours.force_release(token));
    }
    SUBCASE("request_release") {
        CHECK_FALSE(ours.request_release(token));
    }
    REQUIRE(next);
    CHECK(next->held());
    CHECK(ours.inspect()->used == 1);
    CHECK(counts(database));
}

ROWLOCK_SIMULATED_CASE(
    "a forced release whose reply was lost is repeated, and leaves the next holder alone",
    database) {
    client holder{database.source(), database.options(patient())};
    semaphore theirs{holder, "api"};
    theirs.set_capacity(1);
    const auto held = theirs.acquire();
    const auto before = held.token();
    std::optional<permits> next;
    client third{database.source(), database.options({.ttl = 20s})};
    semaphore thirds{third, "api"};
    interception network;
    network.after([&](std::string_view name) {
        if (name != "commit" || next) return;
        next = thirds.try_acquire_for(1, 10s);  // it sweeps what is over
        interception::lose_reply();
    });
    client other{network.wrap(database.source()), database.options()};
    semaphore ours{other, "api"};
    CHECK(ours.force_release(before));
    REQUIRE(next);
    CHECK(next->held());
    CHECK(ours.inspect()->used == 1);
    CHECK(counts(database));
}

TEST_CASE("two forced releases of one grant end it once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options(patient())};
        client third{database.source(), database.options()};
        semaphore theirs{holder, "api"};
        semaphore thirds{third, "api"};
        theirs.set_capacity(3);
        const auto held = theirs.acquire(2);
        std::optional<permits> next;
        interception network;
        network.after([&](std::string_view name) {
            if (name != "hold_to_end" || next) return;
            CHECK(thirds.force_release(held.token()));
            next = thirds.try_acquire(3);
        });
        client other{network.wrap(database.source()), database.options()};
        semaphore ours{other, "api"};
        CHECK_FALSE(ours.force_release(held.token()));
        REQUIRE(next);
        CHECK(next->held());
        CHECK(thirds.inspect()->used == 3);
        CHECK(eventually([&] { return held.lost().stop_requested(); }));
        CHECK(counts(database));
    }
}

TEST_CASE("waiters of a shared_mutex are shown with what they wait for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        client other{database.source(), database.options()};
        shared_mutex theirs{holder, "page"};
        shared_mutex ours{other, "page"};
        CHECK(ours.waiters().empty());
        auto may_write = theirs.acquire(upgradeable);
        auto reading = ours.acquire(shared);
        std::jthread writer{[&] { static_cast<void>(ours.try_acquire_for(exclusive, 20s)); }};
        REQUIRE(eventually([&] { return ours.waiters().size() == 1; }));
        std::jthread upgrading{[&] { static_cast<void>(may_write.try_upgrade_for(20s)); }};
        REQUIRE(eventually([&] { return ours.waiters().size() == 2; }));
        const auto queue = ours.waiters();
        CHECK(queue[0].upgrade);
        CHECK(queue[0].mode == exclusive);
        CHECK_FALSE(queue[1].upgrade);
        CHECK(queue[1].mode == exclusive);
        CHECK(queue[0].who.position == 1);
        reading.release();
        upgrading.join();
        may_write.release();
    }
}
