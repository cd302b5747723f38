// Leases that pass from one session to another, and the renewal of one that no heartbeat keeps.
// What clients do with offers: tests/wire/transfer_test.cpp.

#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

using namespace rowlock;
using namespace std::chrono_literals;
using support::interception;
using support::protocol_session;
using support::soon;

TEST_CASE("a request at once ends a lease when its session would expire, no earlier") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const auto token = holder.try_acquire("job", grant_id{10});
        REQUIRE(token);
        REQUIRE(holder.leases().request_release(holder.db(), "job", *token, {.reason = "a backup"},
                                                soon()));
        CHECK(database.number("select count(*) from rowlock_lock l join rowlock_session s on s.id "
                              "= l.session where l.deadline = s.expires_at") == 1);
    }
}

TEST_CASE("an adopted lease keeps its deadline and the request for its release, with a new token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_session giver{database, session_id{1}};
        const protocol_session taker{database, session_id{2}};
        const auto& leases = taker.leases();
        const auto given =
            giver.on().try_acquire("job", giver.id(), grant_id{10}, {.deadline_us = 600'000'000});
        const auto endless = giver.try_acquire("endless", grant_id{11});
        REQUIRE(given);
        REQUIRE(endless);
        REQUIRE(leases.request_release(
            taker.db(), "job", *given,
            {.within = 1h, .asked_by = "an operator", .reason = "a backup"}, soon()));

        const auto adopt = [&](std::string_view name, grant_id was, std::int64_t token,
                               grant_id as) {
            return leases.adopt(taker.db(), {name, giver.id(), was, token}, taker.id(), as, soon());
        };
        CHECK_FALSE(adopt("job", grant_id{11}, *given, grant_id{20}));
        const auto adopted = adopt("job", grant_id{10}, *given, grant_id{20});
        REQUIRE(adopted);
        CHECK(adopted->token > *given);
        const auto other = adopt("endless", grant_id{11}, *endless, grant_id{21});
        REQUIRE(other);

        const auto find = [&](std::string_view name, session_id session, grant_id as) {
            return leases.find_adopted(taker.db(), name, session, as, soon());
        };
        const auto found = find("job", taker.id(), grant_id{20});
        REQUIRE(found);
        for (const auto& each : {*adopted, *found}) {
            CHECK(each.token ==
                  database.number("select token from rowlock_lock where name = 'job'"));
            REQUIRE(each.left);
            CHECK(*each.left > 5min);
            CHECK(*each.left <= 10min);
            REQUIRE(each.whole);
            CHECK(*each.whole >= *each.left);
            CHECK(*each.whole <= 10min + 1s);
            REQUIRE(each.asked);
            CHECK(each.asked->asked_by == "an operator");
            CHECK(each.asked->reason == "a backup");
        }
        CHECK_FALSE(find("job", giver.id(), grant_id{10}));
        CHECK_FALSE(find("job", taker.id(), grant_id{21}));
        CHECK_FALSE(other->left);
        CHECK_FALSE(other->whole);
        CHECK_FALSE(other->asked);
    }
}

TEST_CASE("a renewal needs the grant, its session and its deadline, and yields to a request") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const support::protocol_connection on{database};
        on.open(session_id{10});
        const auto got =
            on.acquire("job", session_id{10}, grant_id{1}, {.deadline_us = 60'000'000});
        REQUIRE(got.what == protocol::attempt::outcome::granted);
        const auto renew = [&](session_id session, grant_id grant) {
            return on.leases().renew(on.db(), "job", session, grant, 1h, 1min, soon());
        };
        CHECK_FALSE(renew(session_id{10}, grant_id{2}));
        CHECK_FALSE(renew(session_id{11}, grant_id{1}));
        const auto renewed = renew(session_id{10}, grant_id{1});
        REQUIRE(renewed);
        CHECK(*renewed > got.token);
        const auto remaining = [&] {
            return on.leases().inspect(on.db(), "job", soon())->holder->remaining;
        };
        CHECK(remaining() > 50min);
        // Another renewal between the look and the lock.
        interception network;
        const support::protocol_connection slow{network.wrap(database.source())};
        std::optional<std::int64_t> between;
        network.before([&](std::string_view what) {
            const bool now = database.speaks() == sql::dialect::sqlite ? what.starts_with("begin")
                                                                       : what == "lock_lease";
            if (now && !between) between = renew(session_id{10}, grant_id{1});
        });
        const auto last =
            slow.leases().renew(slow.db(), "job", session_id{10}, grant_id{1}, 2h, 1min, soon());
        network.before({});
        REQUIRE(between);
        REQUIRE(last);
        CHECK(*last > *between);
        CHECK(remaining() > 110min);

        REQUIRE(on.leases().request_release(on.db(), "job", *last,
                                            {.within = 1s, .asked_by = "an operator"}, soon()));
        CHECK_FALSE(renew(session_id{10}, grant_id{1}));
        CHECK(remaining() <= 2h);
    }
}
