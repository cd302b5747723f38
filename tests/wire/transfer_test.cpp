// Offered leases: another client takes one over without a moment in which the lock is free. And the
// renewal of a lease that no heartbeat keeps.

#include "sql/run_statement.hpp"
#include "support/blocked.hpp"
#include "support/cut_off.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/waits.hpp"
#include "transaction/fencing/fencing.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;

namespace {

std::int64_t holder_of(support::lock_database& database) {
    return database.number("select coalesce(session, 0) from rowlock_lock where name = 'job'");
}

}  // namespace

TEST_CASE("an offered lease passes to the client that adopts it, past all waiters") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        support::event_log seen;
        client giver{
            database.source(),
            database.options({.ttl = 20s, .heartbeat = 100ms, .on_event = seen.callback()})};
        client taker{database.source(), database.options()};
        client third{database.source(), database.options()};
        auto given = giver.acquire("job", {.note = "a report"});
        std::optional<lease> waited;
        std::jthread waiter{[&] { waited = third.try_acquire_for("job", support::patience); }};
        REQUIRE(eventually([&] { return taker.waiters("job").size() == 1; }));

        const auto over = given.lost();
        const auto offer = given.offer();
        CHECK_FALSE(given.held());
        CHECK(given.remaining() == 0ms);
        CHECK_FALSE(over.stop_requested());
        CHECK_FALSE(giver.holds("job"));
        CHECK(given.offer() == offer);
        // The row is still the giver's.
        CHECK(taker.is_locked("job"));
        CHECK_FALSE(taker.try_acquire("job"));

        auto taken = taker.adopt(lease_offer::parse(offer.text()));
        REQUIRE(taken);
        CHECK(taken->held());
        CHECK(taken->name() == "job");
        CHECK(taken->token() > given.token());
        CHECK(taker.holds("job"));
        const auto shown = third.inspect("job");
        REQUIRE(shown);
        REQUIRE(shown->holder);
        CHECK(shown->token == taken->token());
        CHECK(shown->holder->session == taken->session_id());
        CHECK(shown->holder->note == "a report");
        CHECK(shown->waiting == 1);

        CHECK(eventually([&] { return over.stop_requested(); }));
        CHECK(given.lost().stop_requested());
        CHECK_FALSE(given.held());
        CHECK_NOTHROW(given.release());
        CHECK_FALSE(seen.has(event_kind::lease_lost));
        CHECK(eventually([&] { return seen.has(event_kind::lease_released); }));
        CHECK(holder_of(database) == static_cast<std::int64_t>(taken->session_id()));
        CHECK(taken->held());

        taken->release();
        waiter.join();
        REQUIRE(waited);
        CHECK(waited->token() > taken->token());
    }
}

ROWLOCK_SIMULATED_CASE("an offer that is over is not adopted", database) {
    client taker{database.source(), database.options()};
    auto giver = std::make_unique<client>(database.source(), database.options());
    {
        auto given = giver->acquire("job");
        const auto offer = given.offer();
        given.release();
        CHECK_FALSE(taker.is_locked("job"));
        CHECK_FALSE(taker.adopt(offer));
        for (int more = 0; more < 2; ++more) giver->acquire("job").release();
        auto next = giver->acquire("job");
        CHECK_FALSE(taker.adopt(offer));
        // Nor does an offer of one grant stand for a later one.
        auto mixed = next.offer();
        mixed.token = offer.token;
        CHECK_FALSE(taker.adopt(mixed));
        mixed = next.offer();
        mixed.grant_id = offer.grant_id;
        CHECK_FALSE(taker.adopt(mixed));
    }
    {
        auto given = giver->acquire("job");
        const auto offer = given.offer();
        CHECK(taker.force_release("job"));
        CHECK_FALSE(taker.adopt(offer));
    }
    {
        auto given = giver->acquire("job");
        const auto offer = given.offer();
        client other{database.source(), database.options()};
        const auto taken = other.adopt(offer);
        REQUIRE(taken);
        CHECK_FALSE(taker.adopt(offer));
        CHECK_FALSE(giver->adopt(offer));
        CHECK(taken->held());
    }
    auto given = giver->acquire("job");
    const auto offer = given.offer();
    giver.reset();
    CHECK_FALSE(taker.adopt(offer));
    CHECK(given.lost().stop_requested());
    CHECK(kind_of([&] { static_cast<void>(given.offer()); }) == errc::lock_lost);
}

ROWLOCK_SIMULATED_CASE("only a lease that is held can be offered", database) {
    client locks{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
    lease none;
    CHECK(kind_of([&] { static_cast<void>(none.offer()); }) == errc::not_owner);
    auto held = locks.acquire("job");
    held.release();
    CHECK(kind_of([&] { static_cast<void>(held.offer()); }) == errc::not_owner);
    auto lost = locks.acquire("job");
    CHECK(locks.force_release("job"));
    REQUIRE(eventually([&] { return !lost.held(); }));
    CHECK(kind_of([&] { static_cast<void>(lost.offer()); }) == errc::lock_lost);

    for (const auto& offer :
         {lease_offer{}, lease_offer{.name = "job", .session = session_id{1}},
          lease_offer{.name = "job", .session = session_id{1}, .grant_id = grant_id{2}}}) {
        const auto why = kind_of([&] { static_cast<void>(locks.adopt(offer)); });
        CHECK((why == errc::invalid_options || why == errc::invalid_name));
    }
}

ROWLOCK_SIMULATED_CASE("the giver takes its own offer back, and its earlier lease object is over",
                       database) {
    client locks{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
    auto given = locks.acquire("job");
    const auto offer = given.offer();
    auto again = locks.adopt(offer);
    REQUIRE(again);
    CHECK(again->held());
    CHECK(again->token() > given.token());
    CHECK(given.lost().stop_requested());
    given.release();
    given = lease{};
    CHECK(locks.is_locked("job"));
    const auto beats = locks.stats().heartbeats;
    REQUIRE(eventually([&] { return locks.stats().heartbeats > beats + 6; }));
    CHECK(again->held());
    // A lease that its holder has not offered is not taken from it.
    CHECK(kind_of([&] {
              static_cast<void>(locks.adopt({.name = "job",
                                             .session = again->session_id(),
                                             .grant_id = again->grant_id(),
                                             .token = again->token()}));
          }) == errc::invalid_options);
    CHECK(again->held());
    // An earlier offer is void, and does no harm to a later one.
    const auto later = again->offer();
    CHECK_FALSE(locks.adopt(offer));
    client taker{database.source(), database.options()};
    CHECK(taker.adopt(later));
}

// shows: promise-17
TEST_CASE("the giver's fences fail from the adopting commit on, and an earlier one is waited for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client giver{database.source(), database.options({.ttl = 20s})};
        client taker{database.source(), database.options({.ttl = 20s})};
        database.run("create table rowlock_stock (sku integer primary key, pieces integer)");
        database.run("insert into rowlock_stock values (1, 10)");
        auto given = giver.acquire("job");
        const auto db = database.connect();
        db->query("begin", soon());
        fence(*db, given);
        db->query("update " + database.prefix() + "stock set pieces = pieces - 1", soon());
        // The thread that works in the transaction may be another than the one that offers.
        const auto offer = given.offer();
        CHECK(kind_of([&] { fence(*db, given); }) == errc::not_owner);

        std::optional<lease> taken;
        std::jthread adopter{[&] { taken = taker.adopt(offer); }};
        if (database.speaks() != sql::dialect::sqlite) {
            CHECK(support::somebody_waits_for_a_row(database));
        }
        CHECK(database.number("select token from rowlock_lock where name = 'job'") ==
              given.token().value());
        db->query("commit", soon());
        adopter.join();
        REQUIRE(taken);
        CHECK(database.number("select pieces from rowlock_stock") == 9);

        // The giver's fence as the database sees it, whatever its client knows.
        const auto refused = [&](const lease& held) {
            const auto fencing = detail::make_fencing(database.statements());
            db->query("begin", soon());
            bool failed = true;
            try {
                failed = fencing->fence(*db,
                                        {.name = "job",
                                         .session = held.session_id(),
                                         .token = held.token().value(),
                                         .grant_id = held.grant_id()},
                                        {.statement = 5s, .idle = 20s},
                                        soon()) != detail::verdict::current;
            } catch (const error& failure) {
                CHECK(failure.kind() == errc::lock_lost);
            }
            db->query("rollback", soon());
            return failed;
        };
        CHECK(refused(given));
        CHECK_FALSE(refused(*taken));
        database.run("drop table rowlock_stock");
    }
}

TEST_CASE("of two clients that adopt one offer at the same moment one has it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        interception network;
        client giver{database.source(), database.options()};
        client slow{network.wrap(database.source()), database.options({.statement_timeout = 20s})};
        client quick{database.source(), database.options()};
        auto given = giver.acquire("job");
        const auto offer = given.offer();
        static_cast<void>(slow.acquire("open a session"));
        static_cast<void>(quick.acquire("open another session"));
        std::optional<lease> second;
        std::jthread other;
        bool done = false;
        network.before([&](std::string_view what) {
            if (what != "commit" || std::exchange(done, true)) return;
            // The row has changed, and the other has not seen it.
            other = std::jthread{[&] { second = quick.adopt(offer); }};
            if (database.speaks() != sql::dialect::sqlite) {
                CHECK(support::somebody_waits_for_a_row(database));
            }
        });
        const auto first = slow.adopt(offer);
        network.before({});
        REQUIRE(done);
        other.join();
        REQUIRE(first);
        CHECK(first->held());
        CHECK_FALSE(second);
        CHECK(holder_of(database) == static_cast<std::int64_t>(first->session_id()));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a lease goes to and fro, though its first holder has not learnt that it was adopted",
    database) {
    const auto slow = [&] {
        return database.options(
            {.ttl = 1h, .heartbeat = 20min, .margin = 5min, .wake_ups = wakeup_mode::polling});
    };
    client here{database.source(), slow()};
    client there{database.source(), slow()};
    auto first = here.acquire("job");
    auto second = there.adopt(first.offer());
    REQUIRE(second);
    auto third = here.adopt(second->offer());
    REQUIRE(third);
    CHECK(third->held());
    CHECK(third->token() > second->token());
    // A release of the first grant that arrives late.
    const auto db = database.connect();
    CHECK_FALSE(
        database.protocol().release(*db, "job", first.session_id(), first.grant_id(), soon()));
    first.release();
    second.reset();
    CHECK(third->held());
    CHECK(there.is_locked("job"));
    // The next heartbeats of the first holder.
    client observer{database.source(), database.options()};
    CHECK_FALSE(observer.try_acquire("job"));
    third->release();
    CHECK(observer.try_acquire("job"));
}

TEST_CASE("a giver whose session ends before the adoption gives nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client giver{database.source(), database.options({.ttl = 20s, .heartbeat = 6s})};
        client taker{network.wrap(database.source()), database.options()};
        auto given = giver.acquire("job");
        const auto offer = given.offer();
        static_cast<void>(taker.acquire("open a session"));
        bool done = false;
        network.before([&](std::string_view what) {
            // The lease's row is locked, and the session's not yet.
            if (what != "bump_revision" || std::exchange(done, true)) return;
            database.run("update rowlock_session set ended = " +
                         std::string{database.speaks() == sql::dialect::postgresql ? "true" : "1"} +
                         " where id = " + to_string(offer.session));
        });
        CHECK_FALSE(taker.adopt(offer));
        CHECK(done);
        CHECK(database.number("select token from rowlock_lock where name = 'job'") ==
              given.token().value());
        // The lease is free, and for the first that asks.
        CHECK(client{database.source(), database.options()}.try_acquire("job"));
    }
}

ROWLOCK_SIMULATED_CASE(
    "an adoption whose reply was lost is found, and one that stays unknown is undone", database) {
    interception network;
    client giver{database.source(), database.options()};
    client taker{network.wrap(database.source()),
                 database.options({.ttl = 20s, .heartbeat = 100ms})};
    static_cast<void>(taker.acquire("open a session"));
    auto given = giver.acquire("job");
    auto offer = given.offer();
    bool lost = false;
    network.after([&](std::string_view what) {
        if (what == "commit" && !std::exchange(lost, true)) interception::lose_reply();
    });
    auto taken = taker.adopt(offer);
    REQUIRE(taken);
    CHECK(lost);
    CHECK(taken->held());
    CHECK(taken->token().value() ==
          database.number("select token from rowlock_lock where name = 'job'"));

    offer = taken->offer();
    client last{network.wrap(database.source()),
                database.options({.ttl = 20s, .heartbeat = 100ms, .retry = {.attempts = 3}})};
    static_cast<void>(last.acquire("open another session"));
    REQUIRE(support::cut_off_after_commit(network, [&] { static_cast<void>(last.adopt(offer)); }));
    // Its heartbeat gives the row back.
    CHECK(eventually([&] { return !giver.is_locked("job"); }));
    CHECK(giver.try_acquire("job"));
}

// shows: promise-17
ROWLOCK_SIMULATED_CASE(
    "a lease whose extension may have been committed is offered and adopted all the same",
    database) {
    for (const bool committed : {true, false}) {
        CAPTURE(committed);
        interception network;
        client giver{network.wrap(database.source()),
                     database.options({.ttl = 60s, .heartbeat = 20s, .retry = {.attempts = 1}})};
        client taker{database.source(), database.options({.ttl = 60s, .heartbeat = 20s})};
        auto given = giver.acquire("job", {.max_duration = 20s});
        const auto row = [&] {
            return database.number("select token from rowlock_lock where name = 'job'");
        };
        const auto before = row();
        const auto lose = [&](std::string_view what) {
            if (what == "commit") interception::lose_reply();
        };
        if (committed) {
            network.after(lose);
        } else {
            network.before(lose);
        }
        CHECK(kind_of([&] { given.extend(1h); }) != errc{});
        network.after({});
        network.before({});
        CHECK((row() > before) == committed);

        const auto extended = row();
        auto taken = taker.adopt(given.offer());
        REQUIRE(taken);
        CHECK(taken->held());
        CHECK(taken->token().value() > extended);
        CHECK((taken->remaining() > 20s) == committed);
        CHECK_FALSE(giver.try_acquire("job"));
        taken->release();
        CHECK(giver.try_acquire("job"));
    }
}

ROWLOCK_SIMULATED_CASE(
    "a request for the release of an offered lease goes with it to the next holder", database) {
    client giver{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
    client taker{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
    auto given = giver.acquire("job");
    const auto offer = given.offer();
    REQUIRE(taker.request_release("job", given.token(), {.within = 30s, .reason = "a deploy"}));
    const auto taken = taker.adopt(offer);
    REQUIRE(taken);
    CHECK(taken->remaining() <= 30s);
    REQUIRE(taken->release_request());
    CHECK(taken->release_request()->reason == "a deploy");
    CHECK(eventually([&] { return taken->release_requested().stop_requested(); }));
}

TEST_CASE("an offered lease that was asked for at once is over, for its giver and for others") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client giver{database.source(), database.options({.ttl = 20s, .heartbeat = 100ms})};
        client taker{database.source(), database.options({.ttl = 20s})};
        {
            interception network;
            client slow{network.wrap(database.source()),
                        database.options({.ttl = 1h, .heartbeat = 20min, .margin = 5min})};
            auto given = slow.acquire("job");
            const auto offer = given.offer();
            network.before([](std::string_view what) {
                if (what == "heartbeat") interception::refuse_to_send();
            });
            REQUIRE(taker.request_release("job", given.token()));
            CHECK_FALSE(taker.adopt(offer));
            // A later request with a time does not soften it.
            REQUIRE(taker.request_release("job", given.token(), {.within = 10min}));
            CHECK_FALSE(taker.adopt(offer));
            network.before({});
        }
        auto given = giver.acquire("other");
        const auto over = given.lost();
        static_cast<void>(given.offer());
        REQUIRE(taker.request_release("other", given.token()));
        CHECK(eventually([&] { return over.stop_requested(); }));
        CHECK(eventually([&] { return taker.try_acquire("other").has_value(); }));
        CHECK(kind_of([&] { static_cast<void>(given.offer()); }) == errc::lock_lost);
    }
}

ROWLOCK_SIMULATED_CASE("the giver of an offer learns that its lease's time is over", database) {
    client giver{database.source(), database.options({.ttl = 20s})};
    auto given = giver.acquire("job", {.max_duration = 3s});
    const auto over = given.lost();
    const auto offer = given.offer();
    CHECK(eventually([&] { return over.stop_requested(); }));
    CHECK_FALSE(giver.adopt(offer));
    CHECK(eventually([&] { return giver.try_acquire("job").has_value(); }));
}

TEST_CASE("a taking back that fails leaves the offer as it was") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 20s, .retry = {.attempts = 2}})};
        auto given = locks.acquire("job");
        const auto offer = given.offer();
        const auto tests = std::this_thread::get_id();
        network.before([&](std::string_view) {
            if (std::this_thread::get_id() == tests) interception::refuse_to_send();
        });
        CHECK_THROWS_AS(static_cast<void>(locks.adopt(offer)), error);
        network.before({});
        CHECK_FALSE(given.lost().stop_requested());
        const auto again = locks.adopt(offer);
        REQUIRE(again);
        CHECK(again->held());
    }
}

ROWLOCK_SIMULATED_CASE("a lease with a deadline keeps it when it is adopted", database) {
    client giver{database.source(), database.options({.ttl = 20s})};
    client taker{database.source(), database.options({.ttl = 20s})};
    auto given = giver.acquire("job", {.max_duration = 12s});
    std::this_thread::sleep_for(2s);
    const auto taken = taker.adopt(given.offer());
    REQUIRE(taken);
    // With the margin of the whole time, not of what is left.
    CHECK(taken->remaining() <= 10s - 1950ms);
    CHECK(eventually([&] { return taken->lost().stop_requested(); }));
    CHECK(eventually([&] { return giver.try_acquire("job").has_value(); }));
}

TEST_CASE("a renewed lease is not taken by a client that judged it over by its old deadline") {
    for (const bool renews : {true, false})
        ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
            CAPTURE(renews);
            const support::protocol_session holder{database, session_id{10}};
            const support::protocol_session waiter{database, session_id{20}};
            auto& db = holder.db();
            std::string name;
            std::int64_t tries = 0;
            const auto in_time = [&] {
                name = "job " + std::to_string(++tries);
                const auto token = holder.on().acquire(name, session_id{10}, grant_id{tries},
                                                       {.deadline_us = 500'000});
                REQUIRE(token.what == protocol::attempt::outcome::granted);
                db.query("begin", soon());
                if (renews) {
                    // As renew() does in its transaction.
                    const auto done =
                        sql::run(db, holder.statements()("renew_lease"), soon(), name,
                                 session_id{10}, token.token, std::int64_t{3'600'000'000});
                    if (done.affected() == 1) return true;
                    db.query("rollback", soon());  // in a stall its deadline has passed
                    return false;
                }
                // The control: the same with the old token.
                db.query("update " + database.prefix() + "lock set deadline = " +
                             (database.speaks() == sql::dialect::postgresql
                                  ? "clock_timestamp() + interval '1 hour'"
                                  : "deadline + 3600000000") +
                             " where name = '" + name + "'",
                         soon());
                return true;
            };
            REQUIRE(eventually(in_time));
            std::this_thread::sleep_for(600ms);  // the old deadline passes
            std::optional<std::int64_t> taken;
            std::jthread other{[&] { taken = waiter.try_acquire(name, grant_id{1'000}); }};
            CHECK(support::somebody_waits_for_a_row(database));
            db.query("commit", soon());
            other.join();
            CHECK(taken.has_value() != renews);
        }
}
