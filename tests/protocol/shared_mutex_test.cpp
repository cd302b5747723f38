// Holds of shared_mutexes, on every database through every driver: the transitions of
// semaphore_protocol in the modes of a shared_mutex, one by one, and pairs of them whose
// interleaving is forced.
// shows: promise-13

#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using outcome = protocol::attempt::outcome;
using protocol::counter_kind;
using protocol::permits_for;
using support::interception;
using support::kind_of;
using support::lock_database;
using support::protocol_connection;
using support::soon;

namespace {

constexpr session_id one{1};
constexpr session_id two{2};

constexpr auto shared = lock_mode::shared;
constexpr auto upgradeable = lock_mode::upgradeable;
constexpr auto exclusive = lock_mode::exclusive;

using ids = std::vector<std::int64_t>;

/// The shared_mutex "page" on a connection of its own.
class page_lock {
public:
    explicit page_lock(const lock_database& database)
        : hand_{database}, protocol_{protocol::make_semaphore_protocol(database.statements())} {}

    void open() const {
        hand_.open(one);
        hand_.open(two);
    }
    [[nodiscard]] const protocol::queue_protocol& queue() const { return hand_.queue(); }
    [[nodiscard]] protocol::attempt send(const protocol::grant_request& request) const {
        auto found = protocol_->acquire(db(), request, soon());
        // The first use of the name makes its counter.
        if (found.what == outcome::contested) found = protocol_->acquire(db(), request, soon());
        return found;
    }
    [[nodiscard]] outcome take(session_id session, std::int64_t grant, lock_mode mode) const {
        return send(of(session, grant, permits_for(mode))).what;
    }
    [[nodiscard]] bool took(session_id session, std::int64_t grant, lock_mode mode) const {
        return take(session, grant, mode) == outcome::granted;
    }
    /// One attempt to get what a holder of this mode lacks.
    [[nodiscard]] bool upgraded(session_id session, std::int64_t grant, lock_mode from,
                                std::int64_t base) const {
        return send(upgrade(session, grant, from, base)).what == outcome::granted;
    }
    void wait(session_id session, std::int64_t grant, lock_mode mode) const {
        hand_.queue().enqueue(db(), of(session, grant, permits_for(mode)), soon());
    }
    void wait_for_upgrade(session_id session, std::int64_t grant, std::int64_t base) const {
        hand_.queue().enqueue(db(), upgrade(session, grant, upgradeable, base), soon());
    }
    [[nodiscard]] bool give(session_id session, std::int64_t grant) const {
        return protocol_->release(db(), "page", session, grant_id{grant}, 0, soon());
    }
    [[nodiscard]] bool downgrade(session_id session, std::int64_t grant, lock_mode to) const {
        return protocol_->shrink(db(), "page", session, grant_id{grant}, permits_for(to), soon());
    }
    /// The grant ids that were served, in the order of their tokens.
    [[nodiscard]] ids grant_next() const {
        return support::serve_all(hand_.queue(), db(), "page", soon());
    }
    /// Its row, which nobody holds.
    void make() const { support::make_lock(db(), hand_.statements(), "page"); }
    [[nodiscard]] std::int64_t used() const {
        const auto seen = protocol_->inspect(db(), "page", counter_kind::shared_mutex, soon());
        return seen ? seen->used : 0;
    }
    [[nodiscard]] bool counts() const {
        return std::ranges::none_of(protocol_->neglected(db(), "", 10, soon()),
                                    [](const auto& each) { return each.difference != 0; });
    }
    [[nodiscard]] const protocol::semaphore_protocol& protocol() const { return *protocol_; }
    [[nodiscard]] const protocol_connection& hand() const { return hand_; }
    [[nodiscard]] sql::connection& db() const { return hand_.db(); }

    static protocol::grant_request of(session_id session, std::int64_t grant, std::int64_t count) {
        return {.name = "page",
                .session = session,
                .grant_id = grant_id{grant},
                .thread = "t",
                .note = "n",
                .deadline_us = std::nullopt,
                .permits = {.count = count, .of = counter_kind::shared_mutex}};
    }
    static protocol::grant_request upgrade(session_id session, std::int64_t grant, lock_mode from,
                                           std::int64_t base) {
        auto made = of(session, grant, permits_for(exclusive) - permits_for(from));
        made.permits.upgrades = grant_id{base};
        return made;
    }

private:
    protocol_connection hand_;
    std::unique_ptr<const protocol::semaphore_protocol> protocol_;
};

/// Takes the lock in this mode, in a transaction of the fixture that stays open.
void take_and_stay(lock_database& database, std::int64_t grant, lock_mode mode) {
    const auto permits = std::to_string(permits_for(mode));
    const std::string now =
        database.speaks() == sql::dialect::postgresql ? "clock_timestamp()" : "1";
    database.run("begin");
    database.run("update rowlock_lock set used = used + " + permits +
                 ", token = token + 1 where name = 'page'");
    database.run(
        "insert into rowlock_hold (name, grant_id, session, weight, token, acquired_at) values "
        "('page', " +
        std::to_string(grant) + ", 1, " + permits + ", 1, " + now + ")");
}

}  // namespace

TEST_CASE("each mode goes with those that it does not exclude, and with no other") {
    constexpr std::array modes{shared, upgradeable, exclusive};
    constexpr bool together[3][3] = {
        {true, true, false}, {true, false, false}, {false, false, false}};
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        for (std::size_t held = 0; held < 3; ++held) {
            for (std::size_t asked = 0; asked < 3; ++asked) {
                CAPTURE(to_string(modes[held]));
                CAPTURE(to_string(modes[asked]));
                REQUIRE(page.took(one, 11, modes[held]));
                CHECK(page.took(two, 21, modes[asked]) == together[held][asked]);
                CHECK(page.give(one, 11));
                CHECK(page.give(two, 21) == together[held][asked]);
                CHECK(page.used() == 0);
            }
        }
        // Any number of readers.
        for (std::int64_t grant = 100; grant < 120; ++grant) CHECK(page.took(one, grant, shared));
        CHECK(page.used() == 20);
        CHECK(page.take(two, 21, exclusive) == outcome::held);
        CHECK(page.took(two, 22, upgradeable));
        CHECK(page.took(one, 120, shared));
        CHECK(page.counts());
    }
}

TEST_CASE("a waiting writer is not overtaken by readers, and those behind it enter together") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, shared));
        page.wait(two, 21, exclusive);
        for (std::int64_t grant = 31; grant < 36; ++grant) page.wait(one, grant, shared);
        page.wait(two, 41, exclusive);
        page.wait(one, 51, shared);
        CHECK(page.take(one, 61, shared) == outcome::held);  // nor by a newcomer
        CHECK(page.grant_next().empty());
        CHECK(page.give(one, 11));
        CHECK(page.grant_next() == ids{21});
        CHECK(page.grant_next().empty());
        CHECK(page.give(two, 21));
        CHECK(page.grant_next() == ids{31, 32, 33, 34, 35});
        for (std::int64_t grant = 31; grant < 36; ++grant) CHECK(page.give(one, grant));
        CHECK(page.grant_next() == ids{41});
        CHECK(page.counts());
    }
}

TEST_CASE("PostgreSQL: a hundred readers in line enter by one statement") {
    lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const page_lock page{database};
    page.open();
    REQUIRE(page.took(one, 11, exclusive));
    for (std::int64_t grant = 100; grant < 200; ++grant) page.wait(two, grant, shared);
    CHECK(page.give(one, 11));
    const auto served =
        page.hand().queue().serve(page.db(), "page", protocol::queue_head::counted, soon());
    CHECK(served.waiters.size() == 100);
    CHECK_FALSE(served.more);
    CHECK(page.counts());
}

TEST_CASE("an upgrade waits for the readers alone: before all waiters, and no reader enters") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        REQUIRE(page.took(two, 21, shared));
        page.wait(two, 22, exclusive);
        page.wait(two, 23, shared);
        CHECK_FALSE(page.upgraded(one, 12, upgradeable, 11));  // a reader is there
        page.wait_for_upgrade(one, 13, 11);
        CHECK(page.take(two, 24, shared) == outcome::held);
        CHECK(page.grant_next().empty());
        CHECK(page.give(two, 21));
        CHECK(page.grant_next() == ids{13});
        CHECK(page.used() == permits_for(exclusive));
        const auto served =
            page.protocol().served(page.db(), "page", one, grant_id{13}, soon()).value();
        CHECK(served.token >
              page.protocol().served(page.db(), "page", one, grant_id{11}, soon()).value().token);
        CHECK(page.grant_next().empty());
        // Back to upgradeable: the writer in line still waits, and the reader behind it.
        CHECK(page.give(one, 13));
        CHECK(page.grant_next().empty());
        CHECK(page.give(one, 11));
        CHECK(page.grant_next() == ids{22});
        CHECK(page.counts());
    }
}

TEST_CASE("an upgrade that gives up lets the readers in again") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        REQUIRE(page.took(two, 21, shared));
        page.wait_for_upgrade(one, 12, 11);
        page.wait(two, 22, shared);
        CHECK(page.grant_next().empty());
        const std::array given_up{grant_id{12}};
        CHECK(page.queue().cancel(page.db(), given_up, soon()).size() == 1);
        CHECK(page.grant_next() == ids{22});
        CHECK(page.counts());
    }
}

TEST_CASE("the entry of an upgrade whose client died stops neither readers nor the next upgrade") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        REQUIRE(page.took(two, 21, shared));
        page.wait_for_upgrade(one, 12, 11);
        page.hand().end(one);
        CHECK(page.protocol().sweep(page.db(), "page", soon()) == permits_for(upgradeable));
        CHECK(page.took(two, 22, shared));
        REQUIRE(page.took(two, 23, upgradeable));
        page.wait_for_upgrade(two, 24, 23);
        CHECK(page.give(two, 21));
        CHECK(page.give(two, 22));
        CHECK(page.grant_next() == ids{24});
        CHECK(page.counts());
    }
}

// Its permits are free already: what the upgrade lacks would fit beside readers.
TEST_CASE("an upgrade is granted to no hold that was released or ended by force") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        REQUIRE(page.took(two, 21, shared));
        page.wait_for_upgrade(one, 12, 11);
        const auto token =
            page.protocol().served(page.db(), "page", one, grant_id{11}, soon()).value().token;
        SUBCASE("ended by force") {
            std::optional<protocol::hold_id> whom;
            CHECK(page.protocol().force_release(page.db(), "page", token, "", whom, soon()));
            CHECK(page.protocol().sweep(page.db(), "page", soon()) == permits_for(upgradeable));
        }
        SUBCASE("released") {
            CHECK(page.give(one, 11));
        }
        CHECK(page.took(two, 31, shared));  // its entry stops no attempt
        CHECK(page.give(two, 31));
        page.wait(two, 22, shared);
        // The control: the permits are there.
        CHECK(page.used() + permits_for(exclusive) - permits_for(upgradeable) <=
              permits_for(exclusive));
        CHECK(page.grant_next() == ids{22});  // past the entry of the upgrade
        CHECK(kind_of([&] { (void)page.upgraded(one, 13, upgradeable, 11); }) == errc::lock_lost);
        CHECK(page.used() == 2);
        CHECK(page.counts());
    }
}

TEST_CASE("an attempt to upgrade a hold that was ended by force and not swept yet takes nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        const auto held = page.protocol().served(page.db(), "page", one, grant_id{11}, soon());
        std::optional<protocol::hold_id> whom;
        REQUIRE(
            page.protocol().force_release(page.db(), "page", held.value().token, "", whom, soon()));
        CHECK(kind_of([&] { (void)page.upgraded(one, 12, upgradeable, 11); }) == errc::lock_lost);
        CHECK(page.used() == permits_for(upgradeable));
        CHECK(page.counts());
    }
}

TEST_CASE("of two readers that try to upgrade, none gets in before the other has left") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, shared));
        REQUIRE(page.took(two, 21, shared));
        CHECK_FALSE(page.upgraded(one, 12, shared, 11));
        CHECK_FALSE(page.upgraded(two, 22, shared, 21));
        page.wait(two, 23, exclusive);
        CHECK(page.give(two, 21));
        CHECK(page.upgraded(one, 13, shared, 11));  // past the queue
        CHECK(page.used() == permits_for(exclusive));
        CHECK(page.grant_next().empty());
        CHECK(page.counts());
    }
}

TEST_CASE("a downgrade keeps the hold and lets in those that fit; a second one changes nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, exclusive));
        page.wait(two, 21, shared);
        page.wait(two, 22, exclusive);
        CHECK_FALSE(page.downgrade(two, 11, shared));  // another session's
        CHECK(page.downgrade(one, 11, upgradeable));
        CHECK(page.used() == permits_for(upgradeable));
        CHECK(page.downgrade(one, 11, upgradeable));  // as after a lost reply
        CHECK(page.used() == permits_for(upgradeable));
        CHECK(page.grant_next() == ids{21});
        CHECK(page.downgrade(one, 11, shared));
        CHECK(page.used() == 2);
        CHECK(page.grant_next().empty());  // the writer waits for both readers
        CHECK(page.give(one, 11));
        CHECK_FALSE(page.downgrade(one, 11, shared));
        CHECK(page.give(two, 21));
        CHECK(page.grant_next() == ids{22});
        CHECK(page.counts());
    }
}

TEST_CASE("a semaphore and a shared_mutex cannot have one name, and each says so") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        const auto refuses = [](auto call) { return kind_of(call) == errc::invalid_options; };
        REQUIRE(page.took(one, 11, shared));
        auto as_semaphore = page_lock::of(one, 12, 1);
        as_semaphore.permits.of = counter_kind::semaphore;
        CHECK(refuses([&] { (void)page.send(as_semaphore); }));
        CHECK(refuses([&] { page.protocol().set_capacity(page.db(), "page", 3, soon()); }));
        CHECK(refuses([&] { (void)page.protocol().create(page.db(), "page", 3, soon()); }));
        CHECK_FALSE(page.protocol().inspect(page.db(), "page", counter_kind::semaphore, soon()));
        CHECK(page.used() == 1);

        page.protocol().set_capacity(page.db(), "api", 3, soon());
        for (const auto mode : {shared, upgradeable, exclusive}) {
            auto request = page_lock::of(one, 13, permits_for(mode));
            request.name = "api";
            CHECK(refuses([&] { (void)page.send(request); }));
        }
        CHECK(database.number("select used from rowlock_lock where name = 'api'") == 0);
    }
}

TEST_CASE("an entry whose lock's row was deleted is served all the same") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        page.wait(two, 21, exclusive);
        const auto entries = page.hand().entries_of(two);
        REQUIRE(entries.waiting.size() == 1);
        CHECK(entries.waiting[0].servable);
        CHECK(entries.waiting[0].part);
        CHECK(page.grant_next() == ids{21});
    }
}

TEST_CASE(
    "a reaper deletes the row of an idle shared_mutex once the token floor covers it, and no "
    "semaphore's; used again, it has a greater token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        page.protocol().set_capacity(page.db(), "api", 3, soon());
        REQUIRE(page.took(one, 11, exclusive));
        const auto reap_later = [&] {
            const bool postgresql = database.speaks() == sql::dialect::postgresql;
            const auto minus = [&](const std::string& hours) {
                return postgresql ? " - interval '" + hours + " hours'"
                                  : " - " + hours + " * 3600000000";
            };
            database.run("update rowlock_lock set changed_at = changed_at" + minus("2"));
            database.run("update rowlock_token_floor set raised_at = raised_at" + minus("1"));
            return reap(database.source(), database.reaping(1h, 10min)).leases_deleted;
        };
        CHECK(reap_later() == 0);
        CHECK(reap_later() == 0);
        CHECK(page.give(one, 11));
        // The first round raises the floor, the next one finds it settled.
        CHECK(reap_later() == 0);
        CHECK(page.used() == 0);
        page.wait(two, 21, exclusive);
        CHECK(reap_later() == 0);  // it serves the entry
        CHECK(page.give(two, 21));
        const auto before = database.number("select token from rowlock_lock where name = 'page'");
        CHECK(reap_later() == 0);
        CHECK(reap_later() == 1);
        CHECK(database.number("select count(*) from rowlock_lock where name = 'api'") == 1);
        CHECK(database.number("select count(*) from rowlock_lock") == 1);
        page.make();
        const auto again = page.send(page_lock::of(one, 13, 1));
        REQUIRE(again.what == outcome::granted);
        CHECK(again.token > before);
    }
}

TEST_CASE("a take that commits while the reaper deletes its lock's row keeps it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        page.open();
        page.make();
        database.run("update rowlock_token_floor set floor = 1000, settled = 1000");
        database.run(database.speaks() == sql::dialect::postgresql
                         ? "update rowlock_lock set changed_at = changed_at - interval '2 hours'"
                         : "update rowlock_lock set changed_at = changed_at - 7200000000");
        take_and_stay(database, 11, shared);
        auto reaps = std::async(std::launch::async, [&] {
            return reap(database.source(), database.reaping(1h, 10min)).leases_deleted;
        });
        // PostgreSQL passes over the locked row; InnoDB waits for it.
        if (database.speaks() == sql::dialect::mysql) {
            CHECK(support::waiting_for_rows(page.db(), database.prefix()));
        } else {
            CHECK(reaps.get() == 0);
        }
        database.run("commit");
        if (reaps.valid()) CHECK(reaps.get() == 0);
        CHECK(page.used() == 1);
        CHECK(page.counts());
    }
}

TEST_CASE("a reader that asks while a writer's grant commits does not enter beside it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        page.make();
        take_and_stay(database, 11, exclusive);
        // The control: what looks at the holds alone sees no writer, and would enter.
        CHECK(other.hand().number("select count(*) from " + database.prefix() + "hold") == 0);
        auto reads = std::async(std::launch::async, [&] { return other.take(two, 21, shared); });
        CHECK(support::waiting_for_rows(page.db(), database.prefix()));
        database.run("commit");
        CHECK(reads.get() == outcome::held);
        CHECK(page.used() == permits_for(exclusive));
        CHECK(page.counts());
    }
}

TEST_CASE("a writer that asks while a reader's grant commits does not enter beside it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        page.make();
        take_and_stay(database, 11, shared);
        CHECK(other.hand().number("select count(*) from " + database.prefix() + "hold") == 0);
        auto writes =
            std::async(std::launch::async, [&] { return other.take(two, 21, exclusive); });
        CHECK(support::waiting_for_rows(page.db(), database.prefix()));
        database.run("commit");
        CHECK(writes.get() == outcome::held);
        CHECK(page.used() == 1);
        CHECK(page.counts());
    }
}

TEST_CASE("an upgrade that is tried while a reader's grant commits fails") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        REQUIRE(page.took(two, 21, upgradeable));
        take_and_stay(database, 11, shared);
        auto upgrades = std::async(std::launch::async,
                                   [&] { return other.upgraded(two, 22, upgradeable, 21); });
        CHECK(support::waiting_for_rows(page.db(), database.prefix()));
        database.run("commit");
        CHECK_FALSE(upgrades.get());
        CHECK(page.used() == permits_for(upgradeable) + 1);
        CHECK(page.counts());
    }
}

TEST_CASE("a release and a downgrade of one hold at the same time: one of them changes it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        REQUIRE(page.took(one, 11, exclusive));
        database.run("begin");
        database.run("delete from rowlock_hold where grant_id = 11");
        database.run("update rowlock_lock set used = 0 where name = 'page'");
        auto shrinks =
            std::async(std::launch::async, [&] { return other.downgrade(one, 11, shared); });
        CHECK(support::waiting_for_rows(page.db(), database.prefix()));
        database.run("commit");
        CHECK_FALSE(shrinks.get());
        CHECK(page.used() == 0);
        CHECK(page.counts());
    }
}

TEST_CASE("a release and a sweep behind a downgrade give back what the hold still has") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        for (const bool sweeps : {false, true}) {
            CAPTURE(sweeps);
            const std::int64_t grant = sweeps ? 12 : 11;
            const auto id = std::to_string(grant);
            REQUIRE(page.took(one, grant, exclusive));
            // A downgrade to shared that has not committed: the control reads all permits.
            database.run("begin");
            database.run("update rowlock_hold set weight = 1 where name = 'page' and grant_id = " +
                         id);
            database.run("update rowlock_lock set used = 1 where name = 'page'");
            CHECK(other.hand().number("select weight from " + database.prefix() +
                                      "hold where grant_id = " + id) == permits_for(exclusive));
            if (sweeps) page.hand().end(one);
            auto ends = std::async(std::launch::async, [&] {
                if (!sweeps) return other.give(one, grant);
                // It passes over the locked row.
                return other.protocol().sweep(other.db(), "page", soon()) == 0;
            });
            if (!sweeps) CHECK(support::waiting_for_rows(page.db(), database.prefix()));
            if (sweeps) CHECK(ends.get());
            database.run("commit");
            if (!sweeps) CHECK(ends.get());
            if (sweeps) CHECK(page.protocol().sweep(page.db(), "page", soon()) == 1);
            CHECK(page.used() == 0);
            CHECK(page.counts());
        }
    }
}

TEST_CASE("a dead reader whose fenced transaction is open keeps the writer out until it ends") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, shared));
        // What the fence locks.
        database.run("begin");
        database.run(database.speaks() == sql::dialect::postgresql
                         ? "select 1 from rowlock_hold where grant_id = 11 for share"
                         : "select 1 from rowlock_hold where name = 'page' and grant_id = 11 "
                           "lock in share mode");
        page.hand().end(one);
        // The control: what counts the holds of live sessions would let the writer in.
        CHECK(page.hand().number("select count(*) from " + database.prefix() + "hold p join " +
                                 database.prefix() + "session s on s.id = p.session where " +
                                 (database.speaks() == sql::dialect::postgresql ? "not s.ended"
                                                                                : "s.ended = 0")) ==
              0);
        CHECK(page.protocol().sweep(page.db(), "page", soon()) == 0);
        CHECK(page.take(two, 21, exclusive) == outcome::held);
        database.run("commit");
        CHECK(page.protocol().sweep(page.db(), "page", soon()) == 1);
        CHECK(page.took(two, 22, exclusive));
        CHECK(page.counts());
    }
}

TEST_CASE("a cycle through a mode and a lease needs callers whose limits have not passed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, exclusive));
        REQUIRE(page.hand().acquire("job", two, grant_id{21}, {.thread = "t"}).what ==
                outcome::granted);
        page.hand().enqueue("job", one, grant_id{12}, {.thread = "t"});
        page.wait(two, 22, shared);
        const auto cycles = [&] {
            std::size_t all = 0;
            for (const auto session : {one, two}) {
                all += page.hand().queue().deadlocks(page.db(), session, soon()).size();
            }
            return all;
        };
        for (const std::string which : {"weight is null", "weight is not null"}) {
            CAPTURE(which);
            const auto set = [&](const std::string& limit) {
                database.run("update rowlock_ticket set waits_until = " + limit + " where " +
                             which);
            };
            CHECK(cycles() == 1);
            set("enqueued_at");
            CHECK(cycles() == 0);
            set("null");
        }
    }
}

// --- upgrades: the row names them, and they end with their hold ---

namespace {

std::int64_t upgrades_of(lock_database& database) {
    return database.number(
        "select count(*) from rowlock_lock where session is null and grant_id is not null");
}

std::string lock_in_share(const lock_database& database, std::int64_t grant) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    return "select 1 from rowlock_hold where name = 'page' and grant_id = " +
           std::to_string(grant) + (postgresql ? " for share" : " lock in share mode");
}

}  // namespace

TEST_CASE("beside an upgraded hold there is room for nobody, in the queue and past it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        REQUIRE(page.upgraded(one, 12, upgradeable, 11));
        CHECK(upgrades_of(database) == 1);
        for (const auto mode : {shared, upgradeable, exclusive}) {
            CHECK(page.take(two, 21, mode) == outcome::held);
        }
        CHECK(page.hand().acquire("page", two, grant_id{22}, {}).what == outcome::held);
        page.wait(two, 23, shared);
        CHECK(page.grant_next().empty());
        CHECK(page.give(one, 12));  // the upgrade alone
        CHECK(upgrades_of(database) == 0);
        CHECK(page.grant_next() == ids{23});
        CHECK(page.counts());
    }
}

TEST_CASE("whatever ends a hold ends its upgrade") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        REQUIRE(page.upgraded(one, 12, upgradeable, 11));
        SUBCASE("a release") {
            CHECK(page.give(one, 11));
        }
        SUBCASE("a release by the batch") {
            const std::vector<protocol::own_hold> holds{{grant_id{11}, permits_for(upgradeable)}};
            CHECK(page.protocol().release_together(page.db(), "page", one, holds, soon()) ==
                  std::vector{true});
        }
        SUBCASE("the end of its session") {
            page.hand().end(one);
            CHECK(page.protocol().sweep(page.db(), "page", soon()) == permits_for(upgradeable));
        }
        SUBCASE("an operator, by the token of the upgrade") {
            const auto upgrade =
                page.protocol().served(page.db(), "page", one, grant_id{12}, soon());
            std::optional<protocol::hold_id> whom;
            CHECK(page.protocol().force_release(page.db(), "page", upgrade.value().token, "", whom,
                                                soon()));
            CHECK(page.protocol().sweep(page.db(), "page", soon()) == permits_for(upgradeable));
        }
        CHECK_FALSE(page.protocol().served(page.db(), "page", one, grant_id{12}, soon()));
        CHECK(upgrades_of(database) == 0);
        CHECK(page.took(two, 21, shared));
        CHECK(page.took(two, 22, upgradeable));
        CHECK(page.counts());
    }
}

// The control is the number that is used: it is the same again.
TEST_CASE(
    "an upgrade whose hold gave way to another of that weight after the look is not granted") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        interception network;
        const auto db = network.wrap(database.source()).connect(soon());
        bool done = false;
        const auto change_hands = [&] {
            CHECK(page.give(one, 11));
            CHECK(page.took(two, 21, upgradeable));
        };
        // SQLite: before the transaction, which is the only writer.
        const bool sqlite = database.speaks() == sql::dialect::sqlite;
        bool looked = false;
        network.before([&](std::string_view what) {
            if (what == "next_waiter") looked = true;
            const bool writes = what == "upgrade_lock" || (sqlite && what.starts_with("begin"));
            if (writes && (looked || what == "upgrade_lock") && !std::exchange(done, true)) {
                change_hands();
            }
        });
        SUBCASE("by an attempt, and nobody takes its place") {
            network.before([&](std::string_view what) {
                if (what == "upgrade_lock") CHECK(page.give(one, 11));
            });
            const auto tried =
                page.protocol().acquire(*db, page_lock::upgrade(one, 12, upgradeable, 11), soon());
            CHECK(tried.what == outcome::contested);
            CHECK(upgrades_of(database) == 0);
            REQUIRE(page.took(two, 21, upgradeable));
        }
        SUBCASE("by an attempt") {
            const auto tried =
                page.protocol().acquire(*db, page_lock::upgrade(one, 12, upgradeable, 11), soon());
            CHECK(tried.what == outcome::contested);
        }
        SUBCASE("from the queue") {
            page.wait_for_upgrade(one, 12, 11);
            if (database.speaks() != sql::dialect::postgresql) {
                CHECK(support::serve_all(page.queue(), *db, "page", soon()).empty());
            } else {
                // One statement looks and grants: it waits for the row with its old snapshot.
                const page_lock other{database};
                const auto serve_around = [&](const std::vector<std::string>& changes) {
                    database.run("begin");
                    database.run("delete from rowlock_hold where grant_id = 11");
                    database.run("update rowlock_lock set used = 0 where name = 'page'");
                    auto serves =
                        std::async(std::launch::async, [&] { return other.grant_next(); });
                    CHECK(support::waiting_for_rows(page.db(), database.prefix()));
                    for (const auto& each : changes) database.run(each);
                    database.run("commit");
                    CHECK(serves.get().empty());
                    CHECK(upgrades_of(database) == 0);
                };
                SUBCASE("and nobody takes its place") {
                    serve_around({});
                    CHECK(page.took(two, 21, upgradeable));
                }
                SUBCASE("and another takes its place") {
                    serve_around(
                        {"update rowlock_lock set used = 1000000000, token = token + 1 "
                         "where name = 'page'",
                         "insert into rowlock_hold (name, grant_id, session, weight, token, "
                         "acquired_at) values ('page', 21, 2, 1000000000, 2, "
                         "clock_timestamp())"});
                }
            }
        }
        CHECK(database.number("select used from rowlock_lock") == permits_for(upgradeable));
        CHECK(upgrades_of(database) == 0);
        CHECK(page.took(two, 22, shared));
        CHECK(page.counts());
    }
}

TEST_CASE("the reaper ends an upgrade without a hold, which should never be") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        page.make();
        database.run("update rowlock_lock set grant_id = 12 where name = 'page'");
        CHECK(page.take(two, 21, shared) == outcome::held);
        (void)reap(database.source());
        CHECK(upgrades_of(database) == 0);
        CHECK(page.took(two, 22, shared));
    }
}

TEST_CASE("an upgrade that comes late, behind its end and another, changes nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        interception network;
        const auto db = network.wrap(database.source()).connect(soon());
        network.before([&](std::string_view what) {
            if (what != "upgrade_lock") return;
            CHECK(page.upgraded(one, 13, upgradeable, 11));
            CHECK(page.give(one, 13));
        });
        CHECK(page.protocol()
                  .acquire(*db, page_lock::upgrade(one, 12, upgradeable, 11), soon())
                  .what == outcome::contested);
        CHECK(upgrades_of(database) == 0);
    }
}

TEST_CASE("the end of an upgrade that comes late ends no later one, nor one that was reclaimed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        const auto ends = [&](std::int64_t upgrade) {
            return page.protocol().end_upgrade(page.db(), "page", grant_id{upgrade}, std::nullopt,
                                               soon());
        };
        REQUIRE(page.took(one, 11, upgradeable));
        REQUIRE(page.upgraded(one, 12, upgradeable, 11));
        CHECK(ends(12));
        REQUIRE(page.upgraded(one, 13, upgradeable, 11));
        CHECK_FALSE(ends(12));
        CHECK(upgrades_of(database) == 1);
        page.hand().end(one);
        page.protocol().reclaim(page.db(), one, two, soon());
        CHECK_FALSE(ends(13));
        const auto held = page.protocol().permits_of(page.db(), two, soon());
        REQUIRE(held.size() == 1);
        CHECK(held[0].upgrade == grant_id{14});
        CHECK(held[0].upgrade_token == held[0].token);
        CHECK(page.take(two, 21, shared) == outcome::held);
        CHECK(ends(14));
        CHECK(page.took(two, 21, shared));
        CHECK(page.counts());
    }
}

TEST_CASE(
    "an upgrade does not wait for a transaction that is fenced with its hold, the end of one that "
    "was believed does") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const page_lock page{database};
        const page_lock other{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        database.run("begin");
        database.run(lock_in_share(database, 11));
        REQUIRE(page.upgraded(one, 12, upgradeable, 11));
        CHECK(page.give(one, 12));  // nobody has believed in it: nor does this
        REQUIRE(page.upgraded(one, 13, upgradeable, 11));
        auto ends = std::async(std::launch::async, [&] {
            return other.protocol().end_upgrade(other.db(), "page", grant_id{13}, std::nullopt,
                                                soon());
        });
        CHECK(support::waiting_for_rows(page.db(), database.prefix()));
        CHECK(upgrades_of(database) == 1);
        // Hold first: it waits without the row.
        CHECK_NOTHROW(page.hand().run("update " + database.prefix() +
                                      "lock set thread = 'x' where name = 'page'"));
        CHECK(page.take(two, 21, shared) == outcome::held);
        database.run("commit");
        CHECK(ends.get());
        CHECK(page.took(two, 22, shared));
    }
}

TEST_CASE(
    "a hold that ends its upgrade has the weight that is wanted, and no late shrink lowers that") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const page_lock page{database};
        page.open();
        REQUIRE(page.took(one, 11, upgradeable));
        const auto end_with = [&](std::int64_t upgrade, lock_mode to) {
            return page.protocol().end_upgrade(page.db(), "page", grant_id{upgrade},
                                               permits_for(to), soon());
        };
        interception network;
        const auto db = network.wrap(database.source()).connect(soon());
        int reads = 0;
        bool late = false;
        network.before([&](std::string_view what) {
            if (what == "find_permits" && ++reads == 2) {  // that call begins anew
                CHECK(database.number("select used from rowlock_lock") == permits_for(upgradeable));
                CHECK(page.counts());
                CHECK(page.take(two, 21, upgradeable) == outcome::held);
            }
            const bool writes = what.starts_with("shrink_permit") || what.starts_with("begin") ||
                                what.starts_with("start transaction");
            if (reads != 1 || !writes || std::exchange(late, true)) return;
            CHECK(page.downgrade(one, 11, shared));
            CHECK(page.upgraded(one, 12, shared, 11));
            CHECK(end_with(12, upgradeable));
        });
        CHECK(page.protocol().shrink(*db, "page", one, grant_id{11}, 1, soon()));
        CHECK(reads >= 2);
        CHECK(page.used() == 1);
        REQUIRE(page.upgraded(one, 13, shared, 11));
        CHECK(end_with(13, shared));
        CHECK(page.used() == 1);
        CHECK(page.counts());
    }
}
