// A grant that its client keeps beyond a release, and how another client asks for it through the
// row. When a client does either: tests/wire/retention_test.cpp.

#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string_view>

using namespace rowlock;
using support::protocol_session;
using support::soon;

TEST_CASE("a grant that is asked for through its row is retained no further") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_session keeper{database, session_id{1}};
        const auto token_of = [&] { return database.number("select token from rowlock_lock"); };
        const auto retained = [&](grant_id grant) {
            const auto token = token_of();
            return keeper.leases().retain(keeper.db(),
                                          {"job", keeper.id(), grant, token, token + 4}, soon());
        };
        const auto withdraw = [&](std::string_view name, session_id session, grant_id grant) {
            keeper.leases().withdraw_retention(database.admin(), name, session, grant, soon());
        };
        REQUIRE(keeper.try_acquire("job", grant_id{10}));
        withdraw("job", keeper.id(), grant_id{10});  // a thread holds it: there is no retention yet
        CHECK(retained(grant_id{10}));
        withdraw("another", keeper.id(), grant_id{10});
        withdraw("job", session_id{2}, grant_id{10});
        withdraw("job", keeper.id(), grant_id{11});
        CHECK(retained(grant_id{10}));

        const auto token = token_of();
        withdraw("job", keeper.id(), grant_id{10});
        CHECK_FALSE(retained(grant_id{10}));
        const auto seen = keeper.leases().glance(keeper.db(), "job", soon());
        CHECK(seen.retained);  // until its client learns of it
        CHECK_FALSE(seen.free);
        CHECK(seen.session == keeper.id());
        CHECK(token_of() == token);

        // It was about that grant alone.
        REQUIRE(keeper.free("job", grant_id{10}));
        REQUIRE(keeper.try_acquire("job", grant_id{11}));
        CHECK(retained(grant_id{11}));
    }
}
