// The rows of rounds and parties: what becomes of those that nobody needs any more, and that the
// row of a name orders all changes. The answers that rounds give: tests/wire/barrier_test.cpp.

#include "lock/protocol/barrier/barrier_protocol.hpp"
#include "support/blocked.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/waits.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::barrier_event;
using protocol::barrier_kind;
using protocol::party_stage;
using support::interception;
using support::protocol_connection;
using support::soon;
using fate = protocol::round_party::fate;
using outcome = protocol::joining::outcome;

namespace {

/// Some minutes earlier, in SQL.
std::string earlier(const support::lock_database& database, const std::string& column,
                    int minutes) {
    return column + " = " + column + " - " +
           (database.speaks() == sql::dialect::postgresql
                ? "interval '" + std::to_string(minutes) + " minutes'"
                : std::to_string(minutes) + " * 60000000");
}

/// Rounds on one connection, with a session for each party: of the same number.
class rounds {
public:
    explicit rounds(const sql::connection_source& source)
        : hand{source}, barriers_{hand.statements()} {}
    explicit rounds(const support::lock_database& database) : rounds{database.source()} {}

    [[nodiscard]] protocol::joining begin(const std::string& name, std::int64_t call,
                                          std::int64_t begun = 0) const {
        protocol::admission what{
            .name = name, .terms = {.size = 2}, .id = grant_id{call}, .begun = begun};
        return barriers_.admit(hand.db(), what, soon());
    }
    void join(const std::string& name, std::int64_t party) const {
        protocol::admission what{.name = name,
                                 .generation = 1,
                                 .id = grant_id{party},
                                 .by = session_id{party},
                                 .stage = party_stage::registered};
        REQUIRE(barriers_.admit(hand.db(), what, soon()).what == outcome::joined);
    }
    /// Returns the generation.
    std::int64_t enter(const std::string& name, std::int64_t party, std::int64_t size = 9) const {
        protocol::admission what{.name = name,
                                 .terms = {.kind = barrier_kind::double_barrier, .size = size},
                                 .id = grant_id{party},
                                 .by = session_id{party}};
        const auto done = barriers_.admit(hand.db(), what, soon());
        REQUIRE(done.what == outcome::joined);
        return done.seen.generation;
    }
    std::optional<protocol::round_state> change(const std::string& name, std::int64_t party,
                                                barrier_event what,
                                                std::int64_t generation = 0) const {
        return barriers_.change(hand.db(), {name, generation, grant_id{party}}, what, soon());
    }
    [[nodiscard]] std::optional<protocol::round_state> look(const std::string& name,
                                                            std::int64_t generation = 0) const {
        return barriers_.look(hand.db(), {name, generation}, soon());
    }
    /// As a reaper does it with one name. Returns how many it deleted.
    [[nodiscard]] int retire(const std::string& name) const {
        int deleted = 0;
        for (const auto& each : barriers_.old_rounds(hand.db(), {}, 99, 1h, soon())) {
            if (each.name == name && barriers_.retire(hand.db(), each, 1h, soon())) ++deleted;
        }
        return deleted;
    }
    [[nodiscard]] bool is_past(const std::string& name, std::int64_t generation) const {
        return barriers_.is_past(hand.db(), {name, generation}, soon());
    }

    const protocol_connection hand;

private:
    const protocol::barrier_protocol barriers_;
};

/// Runs `second` beside `first`, on a connection of its own, from when that has run a statement:
/// it waits, on SQLite for the file, until the first has committed.
void amid(support::lock_database& database, const std::function<void(const rounds&)>& first,
          const std::function<void(const rounds&)>& second, std::string_view from = "lock_rounds") {
    interception network;
    interception behind;
    const rounds one{network.wrap(database.source())};
    const rounds other{behind.wrap(database.source())};
    std::atomic<bool> sent{false};
    behind.before([&](std::string_view) { sent = true; });
    std::jthread beside;
    network.after([&](std::string_view what) {
        if (what != from || beside.joinable()) return;
        beside = std::jthread{[&] { second(other); }};
        CHECK(support::eventually([&] { return sent.load(); }));
        if (database.speaks() != sql::dialect::sqlite) {
            CHECK(support::somebody_waits_for_a_row(database));
        }
    });
    first(one);
    network.after({});
    REQUIRE(beside.joinable());
}

}  // namespace

TEST_CASE("a party that withdrew is forgotten when no call can ask for it any more") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const rounds on{database};
        for (const std::int64_t each : {11, 12, 13, 14}) on.hand.open(session_id{each});
        const auto withdraw = [&](const std::string& name, std::int64_t party) {
            CHECK_FALSE(on.change(name, party, barrier_event::withdraw));
        };
        const auto parties = [&](const std::string& name) {
            return database.number("select count(*) from rowlock_party where name = '" + name +
                                   "'");
        };
        for (const char* name : {"meeting", "another"}) {
            on.enter(name, 11);
            withdraw(name, 11);
            on.enter(name, 12);
            CHECK(parties(name) == 2);
            withdraw(name, 12);
            withdraw(name, 12);
        }
        database.run("update rowlock_party set " + earlier(database, "joined_at", 11) +
                     " where grant_id = 11");
        database.run("update rowlock_party set " + earlier(database, "joined_at", 9) +
                     " where grant_id = 12");
        CHECK(on.enter("meeting", 13) == 1);
        CHECK(database.number("select sum(grant_id) from rowlock_party where name = 'meeting'") ==
              12 + 13);
        CHECK(parties("another") == 2);
        database.run("update rowlock_party set " + earlier(database, "joined_at", 60));
        on.enter("meeting", 14);
        CHECK(parties("meeting") == 3);  // while others are in, the round keeps what it has
    }
}

TEST_CASE("a round that is over is deleted with its parties when it is old, and its name with it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const rounds on{database};
        for (const std::int64_t each : {11, 12, 21, 31}) on.hand.open(session_id{each});
        for (const char* name : {"meeting", "other"}) {
            REQUIRE(on.enter(name, 11) == 1);
            REQUIRE(on.enter(name, 12) == 1);
            REQUIRE_FALSE(on.change(name, 11, barrier_event::withdraw));
            REQUIRE(on.change(name, 0, barrier_event::reset, 1));
            REQUIRE(on.enter(name, 21) == 2);
        }
        const auto rows = [&](const std::string& table, const std::string& name) {
            return database.number("select count(*) from rowlock_" + table + " where name = '" +
                                   name + "'");
        };
        CHECK(rows("party", "meeting") == 2);
        CHECK(on.retire("meeting") == 0);
        database.run("update rowlock_barrier set " + earlier(database, "changed_at", 59));
        CHECK(on.retire("meeting") == 0);
        database.run("update rowlock_barrier set " + earlier(database, "changed_at", 2));
        CHECK(on.retire("meeting") == 1);  // the second is under way
        CHECK(rows("party", "meeting") == 1);
        CHECK(rows("barrier", "meeting") == 2);
        CHECK(rows("party", "other") == 2);
        CHECK(rows("barrier", "other") == 3);

        REQUIRE(on.change("meeting", 0, barrier_event::reset, 2));
        database.run("update rowlock_barrier set " + earlier(database, "changed_at", 61));
        CHECK(on.retire("meeting") == 1);
        CHECK(rows("barrier", "meeting") == 0);
        CHECK(rows("barrier", "other") == 3);
        // A later round of that name has another number, also if a round before the latest stays.
        CHECK(on.is_past("meeting", 2));
        CHECK_FALSE(on.is_past("meeting", 3));
        CHECK(on.enter("meeting", 31) == 3);
        REQUIRE(on.change("other", 0, barrier_event::reset, 2));
        for (const int generation : {1, 2}) {
            database.run("update rowlock_barrier set " +
                         earlier(database, "changed_at", generation == 1 ? -999 : 61) +
                         " where name = 'other' and generation = " + std::to_string(generation));
        }
        CHECK(on.retire("other") == 1);
        CHECK(on.is_past("other", 2));
        CHECK(on.enter("other", 31) == 3);
    }
}

TEST_CASE("a look shows the parties that are needed alive and are not, and no others") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const rounds on{database};
        constexpr std::int64_t alive = 1, expired = 2, ended = 3, gone_home = 4, elsewhere = 5;
        for (const auto each : {alive, expired, ended, gone_home, elsewhere}) {
            on.hand.open(session_id{each});
            on.enter(each == elsewhere ? "another" : "meeting", each);
        }
        REQUIRE_FALSE(on.change("meeting", gone_home, barrier_event::withdraw));
        on.hand.end(session_id{ended});
        database.run("update rowlock_session set expires_at = opened_at where id in (2, 3, 4, 5)");
        const auto seen = on.look("meeting", 1);
        REQUIRE(seen);
        std::vector<std::pair<grant_id, fate>> shown;
        for (const auto& each : seen->parties) shown.emplace_back(each.id, each.holder);
        std::sort(shown.begin(), shown.end());
        CHECK(shown == std::vector{std::pair{grant_id{expired}, fate::expired},
                                   std::pair{grant_id{ended}, fate::ended}});
        CHECK_FALSE(on.look("meeting", 2));
        // That one has expired is not its loss yet.
        CHECK(on.change("meeting", 0, barrier_event::none)->round.opened ==
              protocol::answer::broken);
        CHECK(on.change("another", 0, barrier_event::none)->round.opened ==
              protocol::answer::pending);
    }
}

TEST_CASE("a round that a call began is the same round for its repetition, and no other's") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const rounds on{database};
        REQUIRE(on.begin("other", 11).what == outcome::joined);
        const auto first = on.begin("start", 11);
        REQUIRE(first.what == outcome::joined);
        CHECK(first.seen.generation == 1);
        const auto repeated = on.begin("start", 11, 1);
        CHECK(repeated.what == outcome::joined);
        CHECK(repeated.seen.generation == 1);
        CHECK(on.begin("start", 12, 1).what == outcome::no_round);
        // Also when it has ended since: a call begins one round at most.
        REQUIRE(on.change("start", 0, barrier_event::reset, 1));
        CHECK(on.begin("start", 11, 1).seen.generation == 1);
        CHECK(on.begin("start", 12).seen.generation == 2);
    }
}

// shows: promise-18
TEST_CASE("of two that begin at the same moment one begins a round, and the other finds it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        // The first of a name: the other has begun it when the first makes its row.
        interception network;
        const rounds late{network.wrap(database.source())};
        const rounds other{database};
        bool done = false;
        network.before([&](std::string_view what) {
            if (what != "insert_round" || std::exchange(done, true)) return;
            CHECK(other.begin("start", 12).what == outcome::joined);
        });
        const auto found = late.begin("start", 11);
        CHECK(found.what == outcome::no_round);
        CHECK(found.seen.generation == 1);

        REQUIRE(other.change("start", 0, barrier_event::reset, 1));
        amid(
            database,
            [](const rounds& by) {
                const auto begun = by.begin("start", 21);
                CHECK(begun.what == outcome::joined);
                CHECK(begun.seen.generation == 2);
            },
            [](const rounds& by) {
                const auto begun = by.begin("start", 22);
                CHECK(begun.what == outcome::no_round);
                CHECK(begun.seen.generation == 2);
            });
    }
}

// shows: promise-18
TEST_CASE("of two arrivals at the same moment the second waits for the first, and both count") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const rounds on{database};
        REQUIRE(on.begin("gate", 1).what == outcome::joined);
        for (const std::int64_t each : {11, 12}) {
            on.hand.open(session_id{each});
            on.join("gate", each);
        }
        const auto arrive = [](std::int64_t party) {
            return [party](const rounds& by) {
                CHECK(by.change("gate", party, barrier_event::arrive));
            };
        };
        amid(database, arrive(11), arrive(12));
        const auto after = on.look("gate");
        CHECK(after->round.arrived == 2);
        CHECK(after->round.opened == protocol::answer::given);
    }
}

// shows: promise-18
TEST_CASE("of an arrival and a loss at the same moment the first decides, and all get its answer") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const rounds on{database};
        for (const std::int64_t each : {11, 12, 21, 22}) on.hand.open(session_id{each});
        for (const std::int64_t each : {10, 20}) {
            const std::string name = each == 10 ? "arrival first" : "loss first";
            REQUIRE(on.begin(name, each).what == outcome::joined);
            on.join(name, each + 1);
            on.join(name, each + 2);
            database.run("update rowlock_barrier set size = 1 where name = '" + name + "'");
        }
        using protocol::answer;
        const auto arrives = [](const std::string& name, std::int64_t party, answer told) {
            return [=](const rounds& by) {
                const auto after = by.change(name, party, barrier_event::arrive, 1);
                REQUIRE(after);
                CHECK(after->round.opened == told);
            };
        };
        const auto is_lost = [](const std::string& name, std::int64_t party) {
            return [=](const rounds& by) {
                by.hand.end(session_id{party});
                CHECK(by.change(name, 0, barrier_event::none, 1));
            };
        };
        // The arrival has read that the other lives.
        amid(database, arrives("arrival first", 11, answer::given), is_lost("arrival first", 12),
             "look_at_round");
        CHECK(on.look("arrival first")->round.opened == answer::given);
        amid(database, is_lost("loss first", 22), arrives("loss first", 21, answer::broken));
        CHECK(on.look("loss first")->round.opened == answer::broken);
    }
}

// shows: promise-18
TEST_CASE("a withdrawal waits for an entry that is on its way, and takes it back or is too late") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const rounds on{database};
        for (const std::int64_t each : {11, 12, 13}) on.hand.open(session_id{each});
        const auto enters = [](std::int64_t party) {
            return [party](const rounds& by) { CHECK(by.enter("step", party, 2) == 1); };
        };
        const auto withdraws = [](std::int64_t party, bool is_in) {
            return [=](const rounds& by) {
                CHECK(by.change("step", party, barrier_event::withdraw).has_value() == is_in);
            };
        };
        withdraws(11, false)(on);  // a name without a row
        enters(11)(on);
        withdraws(11, false)(on);
        // The entry's own client has given it up, and does not know its generation.
        amid(database, enters(12), withdraws(12, false));
        CHECK(on.look("step")->round.arrived == 0);
        enters(13)(on);
        on.hand.open(session_id{14});
        amid(database, enters(14), withdraws(13, true));
        CHECK(on.look("step")->round.arrived == 2);
        CHECK(on.look("step")->round.opened == protocol::answer::given);
    }
}

TEST_CASE("a round that begins while its name is deleted has a number above the deleted ones") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const rounds on{database};
        REQUIRE(on.begin("start", 11).what == outcome::joined);
        REQUIRE(on.change("start", 0, barrier_event::reset, 1));
        database.run("update rowlock_barrier set " + earlier(database, "changed_at", 61));
        amid(
            database, [](const rounds& by) { CHECK(by.retire("start") == 1); },
            [](const rounds& by) { CHECK(by.begin("start", 12).seen.generation == 2); });
        CHECK_FALSE(on.look("start", 1));
        CHECK(on.look("start")->generation == 2);
    }
}
