// Several leases at once, on every database through every driver: all of them or none, one order
// for all queues, and no queue that passes such a request over. shows: promise-13

#include "lock/protocol/multi/multi_protocol.hpp"
#include "support/blocked.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::attempt;
using protocol::multi_attempt;
using protocol::wanted_name;
using support::grant_id_of;
using support::soon;
using outcome = attempt::outcome;

namespace {

/// The live sessions 1 to 4. A request's grant ids are its number times 10, and so on.
struct several {
    explicit several(support::lock_database& which)
        : database{which},
          hand{which},
          protocol{protocol::make_multi_protocol(which.statements())} {
        for (const std::int64_t id : {1, 2, 3, 4}) hand.open(session_id{id});
    }

    static std::vector<wanted_name> entries(std::int64_t request,
                                            const std::vector<std::string_view>& names) {
        std::vector<wanted_name> all;
        for (const auto name : names) {
            all.push_back({name, grant_id{request * 10 + static_cast<std::int64_t>(all.size())}});
        }
        return all;
    }
    multi_attempt take(session_id session, std::int64_t request,
                       const std::vector<std::string_view>& names, bool queued = false) const {
        return take_on(hand.db(), session, request, names, queued);
    }
    multi_attempt take_on(sql::connection& db, session_id session, std::int64_t request,
                          const std::vector<std::string_view>& names, bool queued) const {
        const auto all = entries(request, names);
        return protocol->take(
            db, {.names = all, .session = session, .thread = "t", .note = "n", .queued = queued},
            soon());
    }
    void enqueue(session_id session, std::int64_t request,
                 const std::vector<std::string_view>& names) const {
        const auto all = entries(request, names);
        protocol->enqueue(hand.db(), {.names = all, .session = session, .thread = "t"}, soon());
    }
    void make_rows(const std::vector<std::string_view>& names) const {
        for (const auto name : names) hand.acquire_and_free(name, session_id{4});
    }
    [[nodiscard]] std::int64_t held_by(session_id session) const {
        return database.number("select count(*) from rowlock_lock where session = " +
                               to_string(session));
    }
    [[nodiscard]] std::int64_t entries_of(std::int64_t request) const {
        return database.number("select count(*) from rowlock_ticket where grant_id >= " +
                               std::to_string(request * 10) + " and grant_id < " +
                               std::to_string(request * 10 + 10));
    }

    support::lock_database& database;
    const support::protocol_connection hand;
    const std::unique_ptr<const protocol::multi_protocol> protocol;
};

}  // namespace

TEST_CASE("several free leases are taken by one call, with rising tokens") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        const auto token = on.hand.acquire_and_free("b", session_id{4});
        // "a" and "c" have no rows yet.
        const auto found = on.take(session_id{1}, 1, {"a", "b", "c"});
        REQUIRE(found.what == outcome::granted);
        REQUIRE(found.tokens.size() == 3);
        CHECK(found.tokens[1] > token);
        CHECK(on.held_by(session_id{1}) == 3);
        CHECK(on.hand.served("b", session_id{1}, grant_id{11})->token == found.tokens[1]);
        CHECK(database.number("select count(*) from rowlock_lock where thread = 't' and note = "
                              "'n'") == 3);
        // Each is released by itself.
        CHECK(on.hand.release("b", session_id{1}, grant_id{11}).freed);
        CHECK(on.take(session_id{2}, 2, {"b", "c"}).what == outcome::held);
        CHECK(on.held_by(session_id{2}) == 0);
        CHECK(on.hand.release("c", session_id{1}, grant_id{12}).freed);
        CHECK(on.take(session_id{2}, 2, {"b", "c"}).what == outcome::granted);
    }
}

TEST_CASE("of several leases none is taken if one is held, waited for or promised") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.make_rows({"a", "b"});
        SUBCASE("held") {
            REQUIRE(on.hand.try_acquire("b", session_id{2}, grant_id{90}));
            const auto seen = on.take(session_id{1}, 1, {"a", "b"});
            CHECK(seen.what == outcome::held);
            CHECK(seen.remaining > 50s);
        }
        SUBCASE("waited for") {
            on.hand.enqueue("b", session_id{2}, grant_id{90});
            CHECK(on.take(session_id{1}, 1, {"a", "b"}).what == outcome::held);
        }
        SUBCASE("waited for by a request for several") {
            on.enqueue(session_id{2}, 9, {"b", "c"});
            CHECK(on.take(session_id{1}, 1, {"a", "b"}).what == outcome::held);
        }
        SUBCASE("a session that ended") {
            on.hand.end(session_id{1});
            CHECK(on.take(session_id{1}, 1, {"a", "b"}).what == outcome::session_dead);
        }
        CHECK(on.held_by(session_id{1}) == 0);
        // A dead waiter blocks nothing.
        on.hand.end(session_id{2});
        const auto again = on.take(session_id{3}, 3, {"a", "b"});
        CHECK(again.what == outcome::granted);
    }
}

TEST_CASE("an expired holder of one of several leases is reported, and ended first") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.make_rows({"a", "b"});
        REQUIRE(on.hand.try_acquire("b", session_id{2}, grant_id{90}));
        database.run("update rowlock_session set expires_at = " +
                     std::string{database.speaks() == sql::dialect::postgresql
                                     ? "clock_timestamp() - interval '1 second'"
                                     : "1"} +
                     " where id = 2");
        const auto seen = on.take(session_id{1}, 1, {"a", "b"});
        CHECK(seen.what == outcome::held);
        CHECK(seen.expired == std::vector{session_id{2}});
        CHECK(on.held_by(session_id{1}) == 0);
        CHECK(database.protocol().sessions().end_expired(on.hand.db(), session_id{2}, soon()));
        CHECK(on.take(session_id{1}, 1, {"a", "b"}).what == outcome::granted);
    }
}

TEST_CASE("an entry of a request for several is not served alone, nor is any behind it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        const auto held = on.hand.acquire("a", session_id{1}, grant_id{5});
        REQUIRE(held.what == outcome::granted);
        REQUIRE(on.hand.try_acquire("b", session_id{1}, grant_id{6}));
        on.enqueue(session_id{2}, 2, {"a", "b"});
        on.hand.enqueue("a", session_id{3}, grant_id{33});
        on.hand.enqueue("b", session_id{3}, grant_id{34});

        // The holder sees no next waiter whom it could promise anything.
        const auto confirmed = on.hand.confirm_and_read_next("a", session_id{1}, grant_id{5});
        REQUIRE(confirmed);
        CHECK_FALSE(confirmed->next.has_value());

        const auto done = on.hand.release("a", session_id{1}, grant_id{5});
        CHECK(done.freed);
        // PostgreSQL says whom it has notified; the others look afterwards.
        if (database.speaks() == sql::dialect::postgresql) {
            REQUIRE(done.next);
            CHECK(done.next->grant_id == grant_id{20});
            CHECK_FALSE(done.next->granted());
            CHECK(done.next->woken);
        } else {
            CHECK_FALSE(done.next.has_value());
        }
        CHECK(database.number("select count(*) from rowlock_lock where name = 'a' and session is "
                              "null") == 1);
        const auto told = on.hand.grant_next("a");
        REQUIRE(told);
        CHECK(told->grant_id == grant_id{20});
        CHECK(told->session == session_id{2});
        CHECK_FALSE(told->granted());
        CHECK(on.entries_of(2) == 2);

        // Its turn at "a", not at "b".
        CHECK(on.take(session_id{2}, 2, {"a", "b"}, true).what == outcome::held);
        CHECK(on.held_by(session_id{2}) == 0);
        CHECK(on.hand.release("b", session_id{1}, grant_id{6}).freed);
        const auto taken = on.take(session_id{2}, 2, {"a", "b"}, true);
        REQUIRE(taken.what == outcome::granted);
        CHECK(taken.tokens[0] > held.token);
        CHECK(on.held_by(session_id{2}) == 2);
        CHECK(on.entries_of(2) == 0);
        // Once.
        CHECK(on.take(session_id{2}, 2, {"a", "b"}, true).what == outcome::held);

        // Then those behind it.
        const auto next = on.hand.release("a", session_id{2}, grant_id{20});
        REQUIRE(next.next);
        CHECK(next.next->grant_id == grant_id{33});
        CHECK(next.next->granted());
    }
}

TEST_CASE("a holder promises and hands over to single waiters before a request for several only") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        REQUIRE(on.hand.try_acquire("a", session_id{1}, grant_id{5}));
        on.hand.enqueue("a", session_id{3}, grant_id{33});
        on.enqueue(session_id{2}, 2, {"a", "b"});
        on.hand.enqueue("a", session_id{4}, grant_id{44});
        const auto confirmed = on.hand.confirm_and_read_next("a", session_id{1}, grant_id{5});
        REQUIRE(confirmed);
        if (database.speaks() != sql::dialect::sqlite) {
            REQUIRE(confirmed->next);
            CHECK(confirmed->next->grant_id == grant_id{33});
            CHECK_FALSE(confirmed->next->after.has_value());
            const auto handed =
                on.hand.hand_over_to("a", session_id{1}, grant_id{5}, *confirmed->next);
            REQUIRE(handed);
            CHECK(handed->granted());
        } else {
            CHECK(on.hand.release("a", session_id{1}, grant_id{5}).next->grant_id == grant_id{33});
        }
        const auto behind = on.hand.confirm_and_read_next("a", session_id{3}, grant_id{33});
        REQUIRE(behind);
        CHECK_FALSE(behind->next.has_value());
        CHECK(on.hand.release("a", session_id{3}, grant_id{33}).freed);
        CHECK(on.take(session_id{2}, 2, {"a", "b"}, true).what == outcome::granted);
    }
}

TEST_CASE("of two requests for several leases the same one is first in every queue") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const several on{database};
        on.make_rows({"a", "b", "c", "d"});
        // Enqueued by many clients at the same moment.
        constexpr int many = 8;
        constexpr int rounds = 20;
        std::atomic<std::int64_t> request{100};
        std::vector<std::future<void>> clients;
        for (int i = 0; i < many; ++i) {
            clients.push_back(std::async(std::launch::async, [&] {
                const auto db = database.connect();
                for (int round = 0; round < rounds; ++round) {
                    const auto all = several::entries(request++, {"a", "b", "c", "d"});
                    on.protocol->enqueue(*db, {.names = all, .session = session_id{1}}, soon());
                }
            }));
        }
        for (auto& each : clients) each.get();
        const auto order_of = [&](const std::string& name) {
            std::vector<std::int64_t> order;
            const auto rows =
                database.run("select grant_id / 10 from rowlock_ticket where name = '" + name +
                             "' order by ticket");
            for (std::size_t row = 0; row < rows.rows(); ++row) {
                // MySQL divides integers into decimals.
                order.push_back(std::stoll(std::string{rows.text(row, 0)}));
            }
            return order;
        };
        const auto first = order_of("a");
        CHECK(first.size() == many * rounds);
        for (const auto* name : {"b", "c", "d"}) CHECK(order_of(name) == first);
    }
}

TEST_CASE("a cancelled entry keeps its request from being granted, and all of them are deleted") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.make_rows({"a", "b"});
        on.enqueue(session_id{2}, 2, {"a", "b"});
        CHECK(on.hand.cancel({grant_id{20}}) == std::vector{grant_id{20}});
        CHECK(on.take(session_id{2}, 2, {"a", "b"}, true).what != outcome::granted);
        CHECK(on.held_by(session_id{2}) == 0);
        on.enqueue(session_id{2}, 3, {"a", "b"});
        const auto all = std::vector{grant_id{21}, grant_id{30}, grant_id{31}};
        CHECK(on.hand.cancel(all) == all);
        CHECK(database.number("select count(*) from rowlock_ticket") == 0);
        CHECK(on.take(session_id{3}, 4, {"a", "b"}).what == outcome::granted);
    }
}

TEST_CASE("several leases are taken with all entries or with none, whatever happens meanwhile") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const several on{database};
        on.make_rows({"a", "b", "c"});
        on.enqueue(session_id{2}, 2, {"a", "b", "c"});
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        // While the statement waits for the entry of "c", with all rows locked; elsewhere between
        // the look and the write.
        const auto taken_around = [&](const std::string& change) {
            if (postgresql) {
                const auto other = database.connect();
                other->query("begin", soon());
                other->query(change, soon());
                const bool waits = change.starts_with("delete");
                auto waiting = std::async(std::launch::async, [&] {
                    return on.take_on(*database.connect(), session_id{2}, 2, {"a", "b", "c"}, true);
                });
                if (waits) REQUIRE(support::somebody_waits_for_a_row(database));
                if (!waits) waiting.wait();  // it skips the row
                other->query("commit", soon());
                return waiting.get();
            }
            support::interception network;
            const auto db = network.wrap(database.source()).connect(soon());
            std::atomic<bool> once{false};
            network.after([&](std::string_view what) {
                if (what != "multi_look" || once.exchange(true)) return;
                database.admin().query(change, soon());
            });
            auto found = on.take_on(*db, session_id{2}, 2, {"a", "b", "c"}, true);
            CHECK(once);
            return found;
        };
        SUBCASE("one of the leases is granted to another client") {
            CHECK(taken_around("update " + database.prefix() +
                               "lock set session = 3, grant_id = 90, token = token + 1 "
                               "where name = 'b'")
                      .what != outcome::granted);
            CHECK(on.entries_of(2) == 3);
        }
        SUBCASE("one of the entries is cancelled") {
            CHECK(taken_around("delete from " + database.prefix() + "ticket where grant_id = 21")
                      .what != outcome::granted);
            CHECK(on.entries_of(2) == 2);
        }
        SUBCASE("the last entry is cancelled") {
            CHECK(taken_around("delete from " + database.prefix() + "ticket where grant_id = 22")
                      .what != outcome::granted);
            CHECK(on.entries_of(2) == 2);
        }
        CHECK(on.held_by(session_id{2}) == 0);
    }
}

TEST_CASE("a newcomer takes several leases, or one, not past a request that was there before") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.make_rows({"a", "b", "c"});
        REQUIRE(on.hand.try_acquire("b", session_id{1}, grant_id{6}));
        on.enqueue(session_id{2}, 2, {"a", "b"});
        on.enqueue(session_id{3}, 3, {"a", "c"});
        CHECK_FALSE(on.hand.try_acquire("a", session_id{4}, grant_id{90}));
        CHECK(on.take(session_id{4}, 9, {"a", "c"}).what == outcome::held);
        // "a" and "c" are free, but the request before it wants "a".
        CHECK(on.take(session_id{3}, 3, {"a", "c"}, true).what == outcome::held);
        CHECK(on.hand.release("b", session_id{1}, grant_id{6}).freed);
        CHECK(on.take(session_id{3}, 3, {"a", "c"}, true).what == outcome::held);
        CHECK(on.take(session_id{2}, 2, {"a", "b"}, true).what == outcome::granted);
        CHECK(on.hand.release("a", session_id{2}, grant_id{20}).freed);
        CHECK(on.take(session_id{3}, 3, {"a", "c"}, true).what == outcome::granted);
    }
}

TEST_CASE("an entry of a request for several has one position in each queue") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        REQUIRE(on.hand.try_acquire("a", session_id{1}, grant_id{5}));
        on.hand.enqueue("b", session_id{3}, grant_id{33});
        on.enqueue(session_id{2}, 2, {"a", "b", "c"});
        on.enqueue(session_id{2}, 3, {"a", "c"});
        std::map<grant_id, std::int64_t> positions;
        const auto seen = on.hand.entries_of(session_id{2});
        for (const auto& each : seen.waiting) {
            CHECK(positions.emplace(each.grant_id, each.position).second);
            CHECK(each.behind_several == (each.name != "b"));
        }
        CHECK(positions == std::map<grant_id, std::int64_t>{{grant_id{20}, 1},
                                                            {grant_id{21}, 2},
                                                            {grant_id{22}, 1},
                                                            {grant_id{30}, 2},
                                                            {grant_id{31}, 2}});
    }
}

TEST_CASE("a promise that names an entry for several leases stops no queue, and gives it nothing") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const several on{database};
    on.make_rows({"a", "b"});
    on.enqueue(session_id{2}, 2, {"a", "b"});
    database.run("update rowlock_lock set successor = 20 where name = 'a'");
    const auto taken = on.take(session_id{2}, 2, {"a", "b"}, true);
    CHECK(taken.what == outcome::granted);
    CHECK(on.held_by(session_id{2}) == 2);
    on.enqueue(session_id{3}, 3, {"a", "b"});
    database.run("update rowlock_lock set successor = 30 where name = 'a'");
    const auto confirmed = on.hand.confirm_and_read_next("a", session_id{2}, grant_id{20});
    REQUIRE(confirmed);
    CHECK_FALSE(confirmed->next.has_value());
}

TEST_CASE(
    "a lease that is promised to an entry behind a request for several is served to that one") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const several on{database};
    on.make_rows({"a", "b"});
    on.enqueue(session_id{2}, 2, {"a", "b"});
    on.hand.enqueue("a", session_id{3}, grant_id{33});
    // As if the request had become visible after the promise.
    database.run("update rowlock_lock set successor = 33 where name = 'a'");
    CHECK(on.take(session_id{2}, 2, {"a", "b"}, true).what == outcome::held);
    for (const std::int64_t session : {2, 3}) {
        for (const auto& each : on.hand.entries_of(session_id{session}).waiting) {
            // So that polls serve the queue.
            CHECK(each.behind_several == (each.name == "b"));
        }
    }
    const auto next = on.hand.grant_next("a");
    REQUIRE(next);
    CHECK(next->grant_id == grant_id{33});
    CHECK(next->granted());
}

TEST_CASE("several leases are not waited for while another transaction has a row locked") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const several on{database};
        on.make_rows({"a", "b"});
        on.enqueue(session_id{2}, 2, {"a", "b"});
        const auto other = database.connect();
        other->query("begin", soon());
        other->query("select token from " + database.prefix() + "lock where name = 'b' for update",
                     soon());
        CHECK(on.take(session_id{2}, 2, {"a", "b"}, true).what == outcome::contested);
        CHECK(on.entries_of(2) == 2);
        other->query("rollback", soon());
        CHECK(on.take(session_id{2}, 2, {"a", "b"}, true).what == outcome::granted);
    }
}
