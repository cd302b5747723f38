// Modes of several shared_mutexes at once, on every database through every driver: all of them or
// none, one order for all queues, and no queue that passes such a request over.
// shows: promise-13

#include "lock/protocol/multi/multi_protocol.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::attempt;
using protocol::counter_kind;
using protocol::multi_attempt;
using protocol::permits_for;
using protocol::wanted_name;
using support::kind_of;
using support::soon;
using outcome = attempt::outcome;

namespace {

constexpr auto shared = lock_mode::shared;
constexpr auto upgradeable = lock_mode::upgradeable;
constexpr auto exclusive = lock_mode::exclusive;

using ids = std::vector<std::int64_t>;

/// What a request wants. Its grant ids are its number times 10, and so on.
struct wish {
    session_id session;
    std::int64_t number;
    std::vector<std::pair<std::string_view, lock_mode>> modes;
    bool queued = false;

    [[nodiscard]] std::vector<wanted_name> names() const {
        std::vector<wanted_name> all;
        for (const auto& [name, mode] : modes) {
            all.push_back({name, grant_id{number * 10 + static_cast<std::int64_t>(all.size())},
                           protocol::wanted_for(mode)});
        }
        return all;
    }
    [[nodiscard]] wish as_queued() const {
        auto same = *this;
        same.queued = true;
        return same;
    }
};

/// The live sessions 1 to 4.
struct several {
    explicit several(support::lock_database& which)
        : database{which},
          hand{which},
          protocol{protocol::make_multi_protocol(which.statements())},
          counters{protocol::make_semaphore_protocol(which.statements())} {
        for (const std::int64_t id : {1, 2, 3, 4}) hand.open(session_id{id});
    }

    multi_attempt take(const wish& of) const { return take_on(hand.db(), of); }
    multi_attempt take_on(sql::connection& db, const wish& of) const {
        const auto names = of.names();
        return protocol->take(db,
                              {.names = names,
                               .session = of.session,
                               .thread = "t",
                               .note = "n",
                               .queued = of.queued},
                              soon());
    }
    void enqueue(const wish& of) const { enqueue_on(hand.db(), of); }
    void enqueue_on(sql::connection& db, const wish& of) const {
        const auto names = of.names();
        protocol->enqueue(db, {.names = names, .session = of.session, .thread = "t"}, soon());
    }
    static protocol::grant_request one(std::string_view name, session_id session, std::int64_t id,
                                       lock_mode mode) {
        return {.name = name,
                .session = session,
                .grant_id = grant_id{id},
                .thread = "t",
                .note = {},
                .deadline_us = std::nullopt,
                .permits = protocol::wanted_for(mode)};
    }
    void hold(std::string_view name, session_id session, std::int64_t id, lock_mode mode) const {
        make({name});
        const auto wanted = one(name, session, id, mode);
        const auto found = wanted.permits.is_part()
                               ? counters->acquire(hand.db(), wanted, soon())
                               : hand.leases().acquire(hand.db(), wanted, soon());
        REQUIRE(found.what == outcome::granted);
    }
    void wait(std::string_view name, session_id session, std::int64_t id, lock_mode mode) const {
        hand.queue().enqueue(hand.db(), one(name, session, id, mode), soon());
    }
    [[nodiscard]] bool give(std::string_view name, session_id session, std::int64_t id) const {
        return counters->release(hand.db(), name, session, grant_id{id}, 0, soon()) ||
               hand.free(name, session, grant_id{id});
    }
    void make(const std::vector<std::string_view>& names) const {
        for (const auto each : names) support::make_lock(hand.db(), hand.statements(), each);
    }
    /// The grant ids of those that were served; negative: notified alone.
    [[nodiscard]] ids grant_next(std::string_view name) const {
        return support::serve_all(hand.queue(), hand.db(), name, soon());
    }
    [[nodiscard]] std::int64_t held_by(session_id session) const {
        const auto of = " where session = " + to_string(session);
        return database.number("select count(*) from rowlock_hold" + of) +
               database.number("select count(*) from rowlock_lock" + of);
    }
    [[nodiscard]] std::int64_t entries() const {
        return database.number("select count(*) from rowlock_ticket");
    }
    [[nodiscard]] bool counts() const {
        return std::ranges::none_of(counters->neglected(hand.db(), "", 10, soon()),
                                    [](const auto& each) { return each.difference != 0; });
    }

    support::lock_database& database;
    const support::protocol_connection hand;
    const std::unique_ptr<const protocol::multi_protocol> protocol;
    const std::unique_ptr<const protocol::semaphore_protocol> counters;
};

}  // namespace

TEST_CASE("modes of several shared_mutexes are taken by one call, with rising tokens") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.hold("b", session_id{4}, 90, exclusive);
        const auto before = database.number("select token from rowlock_lock where name = 'b'");
        REQUIRE(on.give("b", session_id{4}, 90));
        // "a" and "c" have no counters yet.
        const auto found =
            on.take({session_id{1}, 1, {{"a", shared}, {"b", exclusive}, {"c", upgradeable}}});
        REQUIRE(found.what == outcome::granted);
        REQUIRE(found.tokens.size() == 3);
        CHECK(found.tokens[1] > before);
        CHECK(on.held_by(session_id{1}) == 3);
        CHECK(on.counts());
        for (const auto& [table, grant] : {std::pair{"hold", 0}, {"lock", 1}, {"hold", 2}}) {
            CHECK(database.number("select token from rowlock_" + std::string{table} +
                                  " where thread = 't' and note = 'n' and grant_id = " +
                                  std::to_string(10 + grant)) ==
                  found.tokens[static_cast<std::size_t>(grant)]);
        }
        // Modes that fit beside them, and modes that do not.
        CHECK(on.take({session_id{2}, 2, {{"a", shared}, {"c", shared}}}).what == outcome::granted);
        const auto full = on.take({session_id{3}, 3, {{"a", shared}, {"b", shared}}});
        CHECK(full.what == outcome::held);
        CHECK(full.full == std::vector<std::string>{"b"});
        CHECK(on.take({session_id{3}, 3, {{"a", shared}, {"c", upgradeable}}}).what ==
              outcome::held);
        CHECK(on.held_by(session_id{3}) == 0);
        // Each is released by itself.
        CHECK(on.give("b", session_id{1}, 11));
        CHECK(on.take({session_id{3}, 4, {{"a", shared}, {"b", shared}}}).what == outcome::granted);
        CHECK(on.counts());
    }
}

TEST_CASE("of several modes none is taken if one does not fit, or is waited for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        const wish both{session_id{1}, 1, {{"a", shared}, {"b", shared}}};
        on.make({"a", "b"});
        SUBCASE("held") {
            on.hold("b", session_id{2}, 90, exclusive);
            CHECK(on.take(both).what == outcome::held);
        }
        SUBCASE("waited for, also where the mode would fit") {
            on.hold("b", session_id{2}, 90, shared);
            on.wait("b", session_id{2}, 91, exclusive);
            CHECK(on.take(both).what == outcome::held);
        }
        SUBCASE("waited for by a request for several") {
            on.enqueue({session_id{2}, 9, {{"b", shared}, {"c", shared}}});
            CHECK(on.take(both).what == outcome::held);
        }
        SUBCASE("a session that ended") {
            on.hand.end(session_id{1});
            CHECK(on.take(both).what == outcome::session_dead);
        }
        SUBCASE("the name of a semaphore") {
            CHECK(on.counters->create(on.hand.db(), "s", 5, soon()));
            CHECK(kind_of([&] {
                      on.take({session_id{1}, 1, {{"a", shared}, {"s", shared}}});
                  }) == errc::invalid_options);
        }
        SUBCASE("a name of which another client has all") {
            REQUIRE(on.hand.try_acquire("l", session_id{4}, grant_id{44}).has_value());
            const wish all_of_it{session_id{1}, 1, {{"b", shared}, {"l", shared}}};
            const auto seen = on.take(all_of_it);
            CHECK(seen.what == outcome::held);
            CHECK(seen.full == std::vector<std::string>{"l"});
            CHECK(on.hand.free("l", session_id{4}, grant_id{44}));
            REQUIRE(on.take(all_of_it).what == outcome::granted);
            CHECK(on.give("b", session_id{1}, 10));
            CHECK(on.give("l", session_id{1}, 11));
        }
        CHECK(on.held_by(session_id{1}) == 0);
        CHECK(on.counts());
        // A dead waiter blocks nothing.
        on.hand.end(session_id{2});
        for (const auto* const each : {"a", "b"}) {
            static_cast<void>(on.counters->sweep(on.hand.db(), each, soon()));
        }
        CHECK(on.take({session_id{3}, 3, {{"a", shared}, {"b", exclusive}}}).what ==
              outcome::granted);
    }
}

TEST_CASE("an entry for several modes is not served alone, nor is any behind it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.hold("a", session_id{1}, 5, exclusive);
        on.hold("b", session_id{1}, 6, shared);
        const wish both{session_id{2}, 2, {{"a", shared}, {"b", exclusive}}, true};
        on.enqueue(both);
        on.wait("a", session_id{3}, 33, shared);
        on.wait("b", session_id{3}, 34, shared);

        // While it does not fit, its client is not notified; nor is a reader served that would.
        CHECK(on.grant_next("a").empty());
        CHECK(on.grant_next("b").empty());
        REQUIRE(on.give("a", session_id{1}, 5));
        CHECK(on.grant_next("a") == ids{-20});
        CHECK(on.entries() == 4);
        // Its turn at "a", not at "b".
        const auto early = on.take(both);
        CHECK(early.what == outcome::held);
        CHECK(early.full == std::vector<std::string>{"b"});
        CHECK(on.held_by(session_id{2}) == 0);

        REQUIRE(on.give("b", session_id{1}, 6));
        CHECK(on.grant_next("b") == ids{-21});
        const auto taken = on.take(both);
        REQUIRE(taken.what == outcome::granted);
        CHECK(on.held_by(session_id{2}) == 2);
        CHECK(on.entries() == 2);
        CHECK(on.take(both).what == outcome::held);  // once

        // Then those behind it, as far as they fit.
        CHECK(on.grant_next("a") == ids{33});
        CHECK(on.grant_next("b").empty());
        REQUIRE(on.give("b", session_id{2}, 21));
        CHECK(on.grant_next("b") == ids{34});
        CHECK(on.counts());
    }
}

TEST_CASE("those before an entry for several modes are served, and its client is notified then") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.hold("a", session_id{1}, 5, exclusive);
        on.wait("a", session_id{3}, 33, shared);
        on.wait("a", session_id{3}, 34, shared);
        on.enqueue({session_id{2}, 2, {{"a", shared}, {"b", shared}}});
        on.wait("a", session_id{4}, 44, shared);
        on.enqueue({session_id{2}, 3, {{"a", shared}, {"b", shared}}});
        REQUIRE(on.give("a", session_id{1}, 5));
        CHECK(on.grant_next("a") == ids{33, 34, -20});
        CHECK(on.entries() == 5);
        // Of a request that has ended it passes over the entry.
        CHECK(on.hand.queue()
                  .cancel(on.hand.db(), std::vector{grant_id{20}, grant_id{21}}, soon())
                  .size() == 2);
        CHECK(on.grant_next("a") == ids{44, -30});
        CHECK(on.counts());
    }
}

TEST_CASE("an entry for several modes has one position in each queue") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.make({"a", "c"});
        on.hold("b", session_id{1}, 5, exclusive);
        on.wait("b", session_id{3}, 33, shared);
        on.enqueue({session_id{2}, 2, {{"a", shared}, {"b", shared}, {"c", exclusive}}});
        on.enqueue({session_id{2}, 3, {{"a", exclusive}, {"c", shared}}});
        std::map<grant_id, std::int64_t> positions;
        for (const auto& each : on.hand.entries_of(session_id{2}).waiting) {
            CHECK(positions.emplace(each.grant_id, each.position).second);
            CHECK(each.behind_several == (each.name != "b"));
            CHECK(each.servable == (each.name != "b"));
            CHECK(each.part == (each.grant_id != grant_id{22} && each.grant_id != grant_id{30}));
            CHECK_FALSE(each.counted);
        }
        CHECK(positions == std::map<grant_id, std::int64_t>{{grant_id{20}, 1},
                                                            {grant_id{21}, 2},
                                                            {grant_id{22}, 1},
                                                            {grant_id{30}, 2},
                                                            {grant_id{31}, 2}});
    }
}

TEST_CASE("of two requests for several modes the same one is first in every queue") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const several on{database};
        constexpr int many = 8;
        constexpr int rounds = 20;
        std::atomic<std::int64_t> request{100};
        std::vector<std::future<void>> clients;
        for (int i = 0; i < many; ++i) {
            clients.push_back(std::async(std::launch::async, [&] {
                const auto db = database.connect();
                for (int round = 0; round < rounds; ++round) {
                    on.enqueue_on(*db, {session_id{1},
                                        request++,
                                        {{"a", shared}, {"b", exclusive}, {"c", shared}}});
                }
            }));
        }
        for (auto& each : clients) each.get();
        const auto order_of = [&](const std::string& name) {
            ids order;
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
        for (const auto* name : {"b", "c"}) CHECK(order_of(name) == first);
    }
}

TEST_CASE("several modes are taken with all entries or with none, whatever happens meanwhile") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const several on{database};
        on.make({"a", "b", "c"});
        wish all{session_id{2}, 2, {{"a", shared}, {"b", exclusive}, {"c", shared}}, true};
        // While the statement waits for a row that the change has locked; elsewhere between the
        // look and the write.
        const auto taken_around = [&](const std::vector<std::string>& changes) {
            if (database.speaks() == sql::dialect::postgresql) {
                const auto other = database.connect();
                other->query("begin", soon());
                for (const auto& each : changes) other->query(each, soon());
                auto waiting = std::async(std::launch::async,
                                          [&] { return on.take_on(*database.connect(), all); });
                REQUIRE(support::somebody_waits_for_a_row(database));
                other->query("commit", soon());
                return waiting.get();
            }
            support::interception network;
            const auto db = network.wrap(database.source()).connect(soon());
            std::atomic<bool> once{false};
            network.after([&](std::string_view what) {
                if (what != "multi_look" || once.exchange(true)) return;
                for (const auto& each : changes) database.admin().query(each, soon());
            });
            auto found = on.take_on(*db, all);
            CHECK(once);
            return found;
        };
        const auto reader_enters = [&](const std::string& name) {
            const std::string now =
                database.speaks() == sql::dialect::postgresql ? "clock_timestamp()" : "1";
            return std::vector{"update " + database.prefix() +
                                   "lock set used = used + 1, token = token + 1 " +
                                   "where name = '" + name + "'",
                               "insert into " + database.prefix() +
                                   "hold (name, grant_id, session, weight, token, acquired_at) "
                                   "values ('" +
                                   name + "', 90, 3, 1, 1, " + now + ")"};
        };
        std::int64_t left = 3;
        SUBCASE("a reader enters where it wants to write") {
            on.enqueue(all);
            CHECK(taken_around(reader_enters("b")).what != outcome::granted);
        }
        SUBCASE("a reader enters where it wants to read") {
            on.enqueue(all);
            CHECK(taken_around(reader_enters("c")).what == outcome::granted);
            CHECK(on.counts());
            return;
        }
        SUBCASE("one that has no entries finds a reader in its way") {
            all.queued = false;
            left = 0;
            CHECK(taken_around(reader_enters("b")).what != outcome::granted);
        }
        SUBCASE("one of the entries is cancelled") {
            on.enqueue(all);
            left = 2;
            CHECK(taken_around({"delete from " + database.prefix() + "ticket where grant_id = 21"})
                      .what != outcome::granted);
        }
        CHECK(on.entries() == left);
        CHECK(on.held_by(session_id{2}) == 0);
        CHECK(on.counts());
    }
}

TEST_CASE("a newcomer takes no mode past a request for several that was there before") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const several on{database};
        on.make({"a", "c"});
        on.hold("b", session_id{1}, 6, exclusive);
        const wish first{session_id{2}, 2, {{"a", shared}, {"b", shared}}, true};
        const wish second{session_id{3}, 3, {{"a", shared}, {"c", shared}}, true};
        on.enqueue(first);
        on.enqueue(second);
        CHECK(
            on.counters->acquire(on.hand.db(), several::one("a", session_id{4}, 90, shared), soon())
                .what == outcome::held);
        CHECK(on.take({session_id{4}, 9, {{"a", shared}, {"c", shared}}}).what == outcome::held);
        // "a" and "c" are free for it, but the request before it wants "a".
        CHECK(on.take(second).what == outcome::held);
        REQUIRE(on.give("b", session_id{1}, 6));
        CHECK(on.take(second).what == outcome::held);
        CHECK(on.take(first).what == outcome::granted);
        // Both read.
        CHECK(on.take(second).what == outcome::granted);
        CHECK(on.counts());
    }
}

TEST_CASE("an upgrade comes before a request for several modes that waits") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const several on{database};
        on.hold("a", session_id{1}, 5, upgradeable);
        on.hold("a", session_id{4}, 6, shared);
        on.make({"b"});
        const wish both{session_id{2}, 2, {{"a", shared}, {"b", shared}}, true};
        on.enqueue(both);
        auto upgrade = several::one("a", session_id{1}, 7, exclusive);
        upgrade.permits.count = permits_for(exclusive) - permits_for(upgradeable);
        upgrade.permits.upgrades = grant_id{5};
        on.hand.queue().enqueue(on.hand.db(), upgrade, soon());
        CHECK(on.take(both).what == outcome::held);
        REQUIRE(on.give("a", session_id{4}, 6));
        CHECK(on.grant_next("a") == ids{7});
        CHECK(on.take(both).what == outcome::held);
        REQUIRE(on.give("a", session_id{1}, 7));
        CHECK(on.grant_next("a") == ids{-20});
        CHECK(on.take(both).what == outcome::granted);
        CHECK(on.counts());
    }
}
