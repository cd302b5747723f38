// Policies, and which holds last longer than they allow. When the reaper looks and what a holder
// does then: tests/wire/max_hold_test.cpp.

#include "lock/protocol/policy/policy_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::overdue_hold;
using protocol::policy_protocol;
using support::protocol_connection;
using support::soon;

namespace {

/// The time that it is now, in SQL: it has passed when it is compared.
std::string now_of(const support::lock_database& database) {
    return database.speaks() == sql::dialect::postgresql ? "clock_timestamp()" : "1";
}

/// All grants were acquired two hours earlier, but those of the name "young".
void age(support::lock_database& database, const std::string& table) {
    database.run(
        "update rowlock_" + table + " set acquired_at = acquired_at - " +
        (database.speaks() == sql::dialect::postgresql ? "interval '2 hours'" : "7200000000") +
        " where name <> 'young'");
}

std::string in_words(const std::vector<overdue_hold>& found) {
    std::string all;
    for (const auto& each : found) {
        all += each.name;
        if (each.grant_id != grant_id{}) {
            all += ' ' + std::to_string(static_cast<std::int64_t>(each.grant_id));
        }
        all += ',';
    }
    return all;
}

}  // namespace

TEST_CASE("a policy is set, changed and removed for one name") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const policy_protocol policies{database.statements()};
        auto& db = database.admin();
        CHECK_FALSE(policies.max_hold(db, "a", soon()));
        policies.set_max_hold(db, "a", 1h, soon());
        policies.set_max_hold(db, "b", 2h, soon());
        policies.set_max_hold(db, "a", 90min, soon());
        policies.set_max_hold(db, "a", 90min, soon());  // its reply was lost
        CHECK(policies.max_hold(db, "a", soon()) == 90min);
        CHECK(policies.last_of_page(db, "", 1, soon()) == "a");
        CHECK(policies.last_of_page(db, "", 10, soon()) == "b");
        CHECK(policies.last_of_page(db, "a", 10, soon()) == "b");
        CHECK_FALSE(policies.last_of_page(db, "b", 10, soon()));
        policies.set_max_hold(db, "a", std::nullopt, soon());
        CHECK_FALSE(policies.max_hold(db, "a", soon()));
        CHECK(policies.max_hold(db, "b", soon()) == 2h);
    }
}

TEST_CASE("a lease is overdue past its policy, while it is held and nobody asked for it at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const policy_protocol policies{database.statements()};
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        std::int64_t last = 10;
        const auto hold = [&](std::string_view name, std::int64_t session) {
            if (name != "free of it") policies.set_max_hold(hand.db(), name, 1h, soon());
            return hand.try_acquire(name, session_id{session}, grant_id{++last}).value();
        };
        hold("asked at once", 1);
        hold("asked", 1);
        hold("ended", 3);
        hold("expired", 2);
        hold("free of it", 1);
        hold("late", 1);
        const auto token = hold("overdue", 1);
        hold("patient", 1);
        hold("young", 1);
        policies.set_max_hold(hand.db(), "patient", 3h, soon());
        database.run("update rowlock_lock set asked_for = grant_id where name = 'asked at once'");
        database.run(
            "update rowlock_lock set asked_for = grant_id, asked_by = 'a client' "
            "where name = 'asked'");
        database.run("update rowlock_lock set deadline = " + now_of(database) +
                     " where name = 'late'");
        database.run("update rowlock_session set expires_at = opened_at where id = 2");
        hand.end(session_id{3});
        age(database, "lock");

        const auto look = [&](std::string after, std::string_view up_to, int limit) {
            return policies.overdue_leases(hand.db(), overdue_hold::past(std::move(after)), up_to,
                                           limit, soon());
        };
        const auto found = look("", "z", 10);
        CHECK(in_words(found) == "asked,overdue,");
        CHECK(found.back().token == token);
        CHECK(in_words(look("", "z", 1)) == "asked,");
        CHECK(in_words(look("asked", "z", 10)) == "overdue,");
        CHECK(in_words(look("", "b", 10)) == "asked,");
    }
}

TEST_CASE("a hold of permits is overdue likewise") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const policy_protocol policies{database.statements()};
        const auto semaphores = protocol::make_semaphore_protocol(database.statements());
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        const auto hold = [&](std::string_view name, std::int64_t session, std::int64_t grant) {
            const auto got = semaphores->acquire(hand.db(),
                                                 {.name = name,
                                                  .session = session_id{session},
                                                  .grant_id = grant_id{grant},
                                                  .thread = {},
                                                  .note = {},
                                                  .deadline_us = std::nullopt,
                                                  .permits = {.count = 1}},
                                                 soon());
            REQUIRE(got.what == protocol::attempt::outcome::granted);
            return got.token;
        };
        for (const char* name : {"api", "free of it", "patient", "wide", "young"}) {
            semaphores->set_capacity(hand.db(), name, 100, soon());
        }
        policies.set_max_hold(hand.db(), "api", 1h, soon());
        policies.set_max_hold(hand.db(), "patient", 3h, soon());
        policies.set_max_hold(hand.db(), "wide", 1h, soon());
        policies.set_max_hold(hand.db(), "young", 1h, soon());
        hold("api", 1, 10);
        const auto token = hold("api", 1, 11);
        hold("api", 1, 12);  // asked for at once
        hold("api", 1, 13);  // past its deadline
        hold("api", 2, 14);  // of an expired session
        hold("api", 3, 15);  // of one that has ended
        hold("api", 1, 17);  // asked for within a time
        hold("free of it", 1, 20);
        hold("patient", 1, 21);
        hold("wide", 1, 9);
        hold("young", 1, 22);
        database.run("update rowlock_hold set requested = 1 where grant_id in (12, 17)");
        database.run("update rowlock_hold set asked_by = 'a client' where grant_id = 17");
        database.run("update rowlock_hold set deadline = " + now_of(database) +
                     " where grant_id = 13");
        database.run("update rowlock_session set expires_at = opened_at where id = 2");
        hand.end(session_id{3});
        age(database, "hold");

        const auto look = [&](const overdue_hold& after, std::string_view up_to, int limit) {
            return policies.overdue_permits(hand.db(), after, up_to, limit, soon());
        };
        const auto found = look(overdue_hold::past(""), "z", 10);
        CHECK(in_words(found) == "api 10,api 11,api 17,wide 9,");
        REQUIRE(found.size() == 4);
        CHECK(found[1].token == token);
        CHECK(in_words(look(overdue_hold::past(""), "z", 2)) == "api 10,api 11,");
        CHECK(in_words(look(found[1], "z", 10)) == "api 17,wide 9,");
        CHECK(in_words(look(overdue_hold::past("api"), "z", 10)) == "wide 9,");
        CHECK(in_words(look(overdue_hold::past(""), "b", 10)) == "api 10,api 11,api 17,");
    }
}
