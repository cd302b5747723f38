// Which candidate leads next, and what a leader writes into its lease. When a client steps down:
// tests/wire/election_test.cpp.

#include "lock/protocol/election/election_protocol.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

using namespace rowlock;
using support::protocol_connection;
using support::soon;

TEST_CASE("the live candidate of the greatest priority leads next, of several the first") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_connection hand{database};
        const protocol::election_protocol elections{database.statements()};
        for (const std::int64_t session : {1, 2, 3, 4, 5}) hand.open(session_id{session});
        const auto token = hand.try_acquire("office", session_id{1}, grant_id{10});
        REQUIRE(token);
        const auto next = [&](std::optional<session_id> of = std::nullopt) {
            const auto found = elections.next(hand.db(), "office", of, soon());
            return found ? found->entry.grant_id : grant_id{};
        };
        CHECK(next() == grant_id{});
        const auto wait = [&](std::string_view name, std::int64_t session, std::int64_t grant,
                              std::int64_t priority) {
            static_cast<void>(hand.queue().enqueue(hand.db(),
                                                   {.name = name,
                                                    .session = session_id{session},
                                                    .grant_id = grant_id{grant},
                                                    .thread = "a thread",
                                                    .note = "a note",
                                                    .deadline_us = 5'000'000,
                                                    .priority = priority},
                                                   soon()));
        };
        wait("office", 2, 20, -3);
        wait("office", 2, 21, 1);
        wait("office", 3, 30, 7);
        wait("office", 4, 40, 7);
        wait("office", 5, 50, 9);
        wait("elsewhere", 4, 41, 100);
        CHECK(next() == grant_id{50});
        hand.end(session_id{5});
        CHECK(next() == grant_id{30});
        CHECK(next(session_id{2}) == grant_id{21});
        CHECK(next(session_id{4}) == grant_id{40});
        CHECK(next(session_id{5}) == grant_id{});

        auto found = elections.next(hand.db(), "office", std::nullopt, soon());
        REQUIRE(found);
        CHECK(found->priority == 7);
        CHECK(found->heir == grant_id{});
        CHECK(found->entry.session == session_id{3});
        CHECK(found->entry.thread == "a thread");
        CHECK(found->entry.note == "a note");
        CHECK(found->entry.deadline_us == 5'000'000);
        CHECK(found->entry.token > *token);
        found->entry.seen = *token;
        CHECK(hand.hand_over_to("office", session_id{1}, grant_id{10}, found->entry, false));
        CHECK(hand.served("office", session_id{3}, grant_id{30}));
    }
}

TEST_CASE("a leader writes its value and its heir into its own grant alone") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_connection hand{database};
        const protocol::election_protocol elections{database.statements()};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        REQUIRE(hand.try_acquire("office", session_id{1}, grant_id{10}, {.note = "first"}));
        REQUIRE(hand.try_acquire("elsewhere", session_id{1}, grant_id{11}, {.note = "first"}));
        hand.enqueue("office", session_id{2}, grant_id{20});
        hand.enqueue("elsewhere", session_id{2}, grant_id{21});
        const auto write = [&](std::string_view name, session_id session, grant_id grant) {
            const bool value =
                elections.proclaim(hand.db(), name, session, grant, "second", soon());
            const bool heir =
                elections.choose_heir(hand.db(), name, session, grant, grant_id{20}, soon());
            CHECK(value == heir);
            return value;
        };
        const auto heir_of = [&](std::string_view name) {
            return elections.next(hand.db(), name, std::nullopt, soon()).value().heir;
        };
        const auto value_of = [&](std::string_view name) {
            return hand.leases().inspect(hand.db(), name, soon()).value().holder.value().note;
        };
        CHECK_FALSE(write("office", session_id{2}, grant_id{10}));
        CHECK_FALSE(write("office", session_id{1}, grant_id{11}));
        CHECK_FALSE(write("nowhere", session_id{1}, grant_id{10}));
        CHECK(heir_of("office") == grant_id{});
        CHECK(value_of("office") == "first");
        CHECK(write("office", session_id{1}, grant_id{10}));
        CHECK(heir_of("office") == grant_id{20});
        CHECK(value_of("office") == "second");
        CHECK(heir_of("elsewhere") == grant_id{});
        CHECK(value_of("elsewhere") == "first");
    }
}
