// What becomes of the rows of rounds and parties that nobody needs any more. The answers that
// rounds give: tests/wire/barrier_test.cpp.

#include "coordination/protocol/barrier/barrier_protocol.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::barrier_kind;
using support::protocol_connection;
using support::soon;

namespace {

/// Some minutes earlier, in SQL.
std::string earlier(const support::lock_database& database, const std::string& column,
                    int minutes) {
    return column + " = " + column + " - " +
           (database.speaks() == sql::dialect::postgresql
                ? "interval '" + std::to_string(minutes) + " minutes'"
                : std::to_string(minutes) + " * 60000000");
}

}  // namespace

TEST_CASE("a party that withdrew is forgotten when no call can ask for it any more") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_connection hand{database};
        const protocol::barrier_protocol barriers{database.statements()};
        hand.open(session_id{1});
        const auto enter = [&](const std::string& name, std::int64_t party) {
            const auto seen =
                barriers.enter(hand.db(), name, {.kind = barrier_kind::double_barrier, .size = 3},
                               grant_id{party}, session_id{1}, soon());
            REQUIRE(seen.what == protocol::joining::outcome::joined);
            return seen.seen.generation;
        };
        const auto withdraw = [&](const std::string& name, std::int64_t party) {
            REQUIRE_FALSE(barriers.withdraw(hand.db(), {name, 0, grant_id{party}}, soon()));
        };
        const auto parties = [&](const std::string& name) {
            return database.number("select count(*) from rowlock_party where name = '" + name +
                                   "'");
        };
        for (const char* name : {"meeting", "another"}) {
            enter(name, 11);
            withdraw(name, 11);
            enter(name, 12);
            CHECK(parties(name) == 2);
            withdraw(name, 12);
        }
        database.run("update rowlock_party set " + earlier(database, "joined_at", 11) +
                     " where grant_id = 11");
        database.run("update rowlock_party set " + earlier(database, "joined_at", 9) +
                     " where grant_id = 12");
        CHECK(enter("meeting", 13) == 1);
        CHECK(database.number("select sum(grant_id) from rowlock_party where name = 'meeting'") ==
              12 + 13);
        CHECK(parties("another") == 2);
        database.run("update rowlock_party set " + earlier(database, "joined_at", 60));
        enter("meeting", 14);
        CHECK(parties("meeting") == 3);  // while others are in, the round keeps what it has
    }
}

TEST_CASE("a round that is over is deleted with its parties when it is old, and its name with it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_connection hand{database};
        const protocol::barrier_protocol barriers{database.statements()};
        hand.open(session_id{1});
        const auto enter = [&](const std::string& name, std::int64_t party) {
            return barriers
                .enter(hand.db(), name, {.kind = barrier_kind::double_barrier, .size = 3},
                       grant_id{party}, session_id{1}, soon())
                .seen.generation;
        };
        for (const char* name : {"meeting", "other"}) {
            REQUIRE(enter(name, 11) == 1);
            REQUIRE(enter(name, 12) == 1);
            REQUIRE_FALSE(barriers.withdraw(hand.db(), {name, 0, grant_id{11}}, soon()));
            REQUIRE(barriers.reset(hand.db(), name, 1, soon()));
            REQUIRE(enter(name, 21) == 2);
        }
        const auto rows = [&](const std::string& table, const std::string& name) {
            return database.number("select count(*) from rowlock_" + table + " where name = '" +
                                   name + "'");
        };
        const auto remove = [&] { return barriers.delete_old(hand.db(), "meeting", 1h, soon()); };
        CHECK(rows("party", "meeting") == 2);
        CHECK(remove() == 0);
        database.run("update rowlock_barrier set " + earlier(database, "changed_at", 59));
        CHECK(remove() == 0);
        database.run("update rowlock_barrier set " + earlier(database, "changed_at", 2));
        CHECK(remove() == 1);  // the second is under way
        CHECK(rows("party", "meeting") == 1);
        CHECK(rows("barrier", "meeting") == 2);
        CHECK(rows("party", "other") == 2);
        CHECK(rows("barrier", "other") == 3);

        REQUIRE(barriers.reset(hand.db(), "meeting", 2, soon()));
        database.run("update rowlock_barrier set " + earlier(database, "changed_at", 61));
        CHECK(remove() == 1);
        CHECK(rows("barrier", "meeting") == 0);
        CHECK(rows("barrier", "other") == 3);
        // A later round of that name has another number.
        CHECK(barriers.is_past(hand.db(), "meeting", 2, soon()));
        CHECK(enter("meeting", 31) == 3);
    }
}

TEST_CASE("the expired sessions of a round's parties are named, of those that are needed alive") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_connection hand{database};
        const protocol::barrier_protocol barriers{database.statements()};
        constexpr session_id alive{1}, expired{2}, ended{3}, gone_home{4}, elsewhere{5};
        for (const auto session : {alive, expired, ended, gone_home, elsewhere}) hand.open(session);
        const protocol::round_terms terms{.kind = barrier_kind::double_barrier, .size = 9};
        const auto enter = [&](const std::string& name, session_id session) {
            const grant_id party{static_cast<std::int64_t>(session)};
            REQUIRE(barriers.enter(hand.db(), name, terms, party, session, soon()).what ==
                    protocol::joining::outcome::joined);
        };
        for (const auto session : {alive, expired, ended, gone_home}) enter("meeting", session);
        enter("another", elsewhere);
        REQUIRE_FALSE(barriers.withdraw(hand.db(), {"meeting", 0, grant_id{4}}, soon()));
        hand.end(ended);
        database.run("update rowlock_session set expires_at = opened_at where id in (2, 3, 4, 5)");
        const auto seen = barriers.look(hand.db(), "meeting", 1, soon());
        REQUIRE(seen);
        const auto named = [&](std::int64_t generation) {
            return barriers.expired_parties(hand.db(), "meeting", generation,
                                            seen->round.harmless(), soon());
        };
        CHECK(named(1) == std::vector{expired});
        CHECK(named(2).empty());
    }
}

TEST_CASE("a round that a call began is the same round for its repetition, and no other's") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_connection hand{database};
        const protocol::barrier_protocol barriers{database.statements()};
        hand.open(session_id{1});
        const auto begin = [&](const std::string& name, std::int64_t by, bool again) {
            return barriers.begin(hand.db(), name, {.kind = barrier_kind::latch, .size = 2},
                                  grant_id{by}, again, soon());
        };
        using outcome = protocol::joining::outcome;
        REQUIRE(begin("other", 11, false).what == outcome::joined);
        REQUIRE(barriers.reset(hand.db(), "other", 1, soon()));
        const auto first = begin("start", 11, false);
        REQUIRE(first.what == outcome::joined);
        CHECK(first.seen.generation == 1);
        const auto repeated = begin("start", 11, true);
        CHECK(repeated.what == outcome::joined);
        CHECK(repeated.seen.generation == 1);
        CHECK(begin("start", 12, true).what == outcome::no_round);
        // Also when it has ended since: a call begins one round at most.
        REQUIRE(barriers.reset(hand.db(), "start", 1, soon()));
        CHECK(begin("start", 11, true).seen.generation == 1);
        CHECK(begin("start", 12, false).seen.generation == 2);
    }
}
