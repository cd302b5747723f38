// Each transition of a lease's queue, on every database through every driver.

#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/sanitized.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::attempt;
using support::grant_id_of;
using support::protocol_connection;
using support::soon;

namespace {

/// The lines of a plan.
std::string lines_of(const sql::result& plan) {
    std::string all;
    for (std::size_t row = 0; row < plan.rows(); ++row) all.append(plan.text(row, 0)) += '\n';
    return all;
}

using ids = protocol_connection::ids;
using names = protocol_connection::names;

}  // namespace

TEST_CASE("a released lease goes from waiter to waiter in the order of their tickets") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        const auto first = hand.acquire("job", session_id{1}, grant_id{10});
        REQUIRE(first.what == attempt::outcome::granted);
        hand.enqueue("job", session_id{2}, grant_id{22});
        hand.enqueue("job", session_id{3}, grant_id{11});  // a smaller grant id, a later ticket
        hand.enqueue("job", session_id{2}, grant_id{33});

        const auto places = hand.entries_of(session_id{2});
        CHECK(places.session_live);
        REQUIRE(places.waiting.size() == 2);
        CHECK(places.waiting[0].grant_id == grant_id{22});
        CHECK(places.waiting[0].position == 1);
        CHECK(places.waiting[1].position == 3);
        CHECK(places.waiting[0].holder_session == session_id{1});
        CHECK_FALSE(places.waiting[0].servable);
        CHECK(places.waiting[0].remaining > 50s);
        CHECK(grant_id_of(hand.grant_next("job")) == grant_id{});  // it is held

        std::int64_t token = first.token;
        session_id holder{1};
        grant_id held{10};
        for (const auto& [session, expected] :
             {std::pair{session_id{2}, grant_id{22}}, std::pair{session_id{3}, grant_id{11}},
              std::pair{session_id{2}, grant_id{33}}}) {
            const auto done = hand.release("job", holder, held);
            CHECK(done.freed);
            REQUIRE(done.next.has_value());
            CHECK(done.next->session == session);
            CHECK(done.next->grant_id == expected);
            CHECK(done.next->token > token);
            const auto grant = hand.served("job", session, expected);
            REQUIRE(grant.has_value());
            CHECK(grant->token == done.next->token);
            CHECK_FALSE(hand.served("job", session, grant_id{99}).has_value());
            CHECK_FALSE(hand.release("job", holder, held).freed);  // again
            token = done.next->token;
            holder = session;
            held = expected;
        }
        const auto last = hand.release("job", holder, held);
        CHECK(last.freed);
        CHECK_FALSE(last.next.has_value());
        CHECK(database.number("select count(*) from rowlock_ticket") == 0);
        CHECK(database.number("select count(*) from rowlock_lock where session is null") == 1);
        CHECK(hand.acquire("job", session_id{1}, grant_id{12}).token > token);
    }
}

TEST_CASE("grant_next grants a free lease to the first live waiter, once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        CHECK(grant_id_of(hand.grant_next("job")) == grant_id{});  // no row, no waiter
        hand.enqueue("job", session_id{2}, grant_id{22});
        hand.enqueue("job", session_id{3}, grant_id{33});
        REQUIRE(hand.entries_of(session_id{2}).waiting.size() == 1);
        CHECK(hand.entries_of(session_id{2}).waiting[0].servable);
        CHECK(grant_id_of(hand.grant_next("job")) == grant_id{22});  // the row was missing
        CHECK(grant_id_of(hand.grant_next("job")) == grant_id{});
        CHECK(hand.entries_of(session_id{2}).waiting.empty());
        REQUIRE(hand.entries_of(session_id{3}).waiting.size() == 1);
        CHECK_FALSE(hand.entries_of(session_id{3}).waiting[0].servable);
        CHECK(hand.entries_of(session_id{3}).waiting[0].position == 1);
        hand.end(session_id{2});
        CHECK(hand.entries_of(session_id{3}).waiting[0].servable);
        CHECK(grant_id_of(hand.grant_next("job")) == grant_id{33});
        CHECK(database.number("select count(*) from rowlock_ticket") == 0);
    }
}

TEST_CASE("a lease without waiters is released, and another session's is not") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        for (const bool contended : {false, true}) {
            REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).what ==
                    attempt::outcome::granted);
            CHECK_FALSE(hand.release("job", session_id{1}, grant_id{11}, contended).freed);
            CHECK_FALSE(hand.release("job", session_id{2}, grant_id{10}, contended).freed);
            hand.enqueue("job", session_id{2}, grant_id{22});
            CHECK_FALSE(hand.release("job", session_id{1}, grant_id{11}, contended).freed);
            CHECK_FALSE(hand.release("no such row", session_id{1}, grant_id{10}, contended).freed);
            CHECK(hand.entries_of(session_id{2}).waiting.size() ==
                  1);  // a release of another's lease serves no waiter
            CHECK(hand.cancel({grant_id{22}}) == ids{grant_id{22}});
            const auto done = hand.release("job", session_id{1}, grant_id{10}, contended);
            CHECK(done.freed);
            CHECK_FALSE(done.next.has_value());
        }
        // A release that expects no waiter: MySQL frees the lease and leaves the check to the
        // caller.
        REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).what == attempt::outcome::granted);
        hand.enqueue("job", session_id{2}, grant_id{22});
        const auto done = hand.release("job", session_id{1}, grant_id{10}, false);
        CHECK(done.freed);
        CHECK(done.next.has_value() == (database.speaks() != sql::dialect::mysql));
        if (!done.next) CHECK(grant_id_of(hand.grant_next("job")) == grant_id{22});
        CHECK(hand.served("job", session_id{2}, grant_id{22}).has_value());
    }
}

TEST_CASE("PostgreSQL: a release waits for the disk behind a transaction pooler, and only there") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        for (const bool pooled : {true, false}) {
            CAPTURE(pooled);
            const session_id self{pooled ? 1 : 2};
            const protocol_connection hand{
                postgresql::open(database.url(), {.transaction_pooler = pooled})
                    .with_tables(database.source().tables())};
            hand.open(self);
            hand.run("set synchronous_commit = on");
            for (const char* name : {"job", "other"}) {
                REQUIRE(hand.try_acquire(name, self, grant_id{10}));
            }
            hand.run("begin");
            CHECK_FALSE(
                hand.leases().release(hand.db(), "job", session_id{3}, grant_id{10}, soon()));
            CHECK_FALSE(hand.leases().release(hand.db(), "job", self, grant_id{11}, soon()));
            CHECK(hand.leases().release(hand.db(), "job", self, grant_id{10}, soon()));
            CHECK((hand.db().query("show synchronous_commit", soon()).text(0, 0) == "on") ==
                  pooled);
            hand.run("commit");
            CHECK(database.number("select count(*) from rowlock_lock where session is null") == 1);
            CHECK(hand.free("other", self, grant_id{10}));
            hand.end(self);
        }
    }
}

// shows: promise-9
TEST_CASE("dead waiters are passed over, do not block newcomers, and are removed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 4}) hand.open(session_id{session});
        hand.open(session_id{3}, {.ttl = 1ms});  // expires at once, without being ended
        REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).what == attempt::outcome::granted);
        hand.enqueue("job", session_id{2}, grant_id{22});
        hand.enqueue("job", session_id{3}, grant_id{33});
        hand.enqueue("job", session_id{4}, grant_id{44});
        hand.end(session_id{2});
        REQUIRE(support::eventually([&] { return !hand.entries_of(session_id{3}).session_live; }));
        REQUIRE(hand.entries_of(session_id{4}).waiting.size() == 1);
        CHECK(hand.entries_of(session_id{4}).waiting[0].position == 1);
        CHECK(hand.entries_of(session_id{2}).waiting.at(0).position == 0);
        const auto done = hand.release("job", session_id{1}, grant_id{10});
        REQUIRE(done.next.has_value());
        CHECK(done.next->session == session_id{4});
        CHECK_FALSE(hand.release("job", session_id{4}, grant_id{44}).next.has_value());
        CHECK(grant_id_of(hand.grant_next("job")) == grant_id{});
        CHECK(hand.names_with_waiters({"job"}).empty());
        CHECK(hand.acquire("job", session_id{1}, grant_id{11}).what == attempt::outcome::granted);

        const auto reaped = reap(database.source(), database.reaping(60s, 20s));
        CHECK(reaped.sessions_ended == 1);
        CHECK(reaped.waiters_removed == 2);
        CHECK(database.number("select count(*) from rowlock_ticket") == 0);
    }
}

// shows: promise-9
TEST_CASE("a waiter whose time limit has passed is passed over, and blocks no newcomer") {
    const auto limited = [](std::string_view name, session_id session, grant_id grant) {
        return protocol::grant_request{.name = name,
                                       .session = session,
                                       .grant_id = grant,
                                       .thread = {},
                                       .note = {},
                                       .deadline_us = std::nullopt,
                                       .limit_us = 3'600'000'000};
    };
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        // The control: within its limit the same waiter is served.
        for (const bool passed : {true, false}) {
            CAPTURE(passed);
            const std::string name = passed ? "late" : "in time";
            const protocol_connection hand{database};
            const std::int64_t base = passed ? 100 : 200;
            const auto session = [&](std::int64_t number) { return session_id{base + number}; };
            const auto grant = [&](std::int64_t number) { return grant_id{base + number}; };
            for (const std::int64_t number : {1, 2, 3}) hand.open(session(number));
            const auto wait_limited = [&](std::int64_t number) {
                hand.queue().enqueue(hand.db(), limited(name, session(2), grant(number)),
                                     support::soon());
                if (!passed) return;
                database.run(
                    "update rowlock_ticket set waits_until = enqueued_at where grant_id = " +
                    std::to_string(base + number));
            };
            REQUIRE(hand.acquire(name, session(1), grant(1)).what == attempt::outcome::granted);
            wait_limited(20);
            hand.enqueue(name, session(3), grant(30));

            const auto late = hand.entries_of(session(2)).waiting.at(0);
            CHECK(late.position == (passed ? 0 : 1));
            CHECK(hand.entries_of(session(3)).waiting.at(0).position == (passed ? 1 : 2));
            const auto done = hand.release(name, session(1), grant(1));
            REQUIRE(done.next.has_value());
            CHECK(done.next->grant_id == grant(passed ? 30 : 20));

            // As a poll serves it: the lease is free, no release hands it over.
            database.run("update rowlock_lock set session = null where name = '" + name + "'");
            CHECK(grant_id_of(hand.grant_next(name)) == (passed ? grant_id{} : grant(30)));
            if (!passed) continue;
            CHECK(hand.names_with_waiters({name}).empty());
            CHECK_FALSE(hand.entries_of(session(2)).waiting.at(0).position > 0);
            CHECK(hand.acquire(name, session(3), grant(31)).what == attempt::outcome::granted);
            CHECK(hand.cancel({grant(20)}) == ids{grant(20)});
        }
    }
}

TEST_CASE("a waiter that was read before its time limit passed is not served after it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).what == attempt::outcome::granted);
        hand.enqueue("job", session_id{2}, grant_id{20});
        hand.enqueue("job", session_id{3}, grant_id{30});
        const auto seen = hand.confirm_and_read_next("job", session_id{1}, grant_id{10});
        REQUIRE(seen.has_value());
        if (!seen->next) continue;  // SQLite reads nothing ahead
        CHECK(seen->next->grant_id == grant_id{20});
        database.run("update rowlock_ticket set waits_until = enqueued_at where grant_id = 20");
        CHECK_FALSE(hand.hand_over_to("job", session_id{1}, grant_id{10}, *seen->next).has_value());
        const auto done = hand.release("job", session_id{1}, grant_id{10});
        REQUIRE(done.next.has_value());
        CHECK(done.next->grant_id == grant_id{30});
    }
}

TEST_CASE("PostgreSQL: no waiter whose time limit is near is promised a token") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        for (const bool near : {true, false}) {
            CAPTURE(near);
            support::lock_database fresh{database.which()};
            const protocol_connection hand{fresh};
            for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
            REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).what ==
                    attempt::outcome::granted);
            hand.enqueue("job", session_id{2}, grant_id{20});
            hand.enqueue("job", session_id{3}, grant_id{30});
            // A limit that has passed hides the entry; one that is near must not pass meanwhile.
            fresh.run("update rowlock_ticket set waits_until = clock_timestamp() + interval '" +
                      std::string{near ? "990 ms" : "1 hour"} + "' where grant_id = 30");
            const auto seen = hand.confirm_and_read_next("job", session_id{1}, grant_id{10});
            REQUIRE((seen && seen->next));
            CHECK(seen->next->grant_id == grant_id{20});
            CHECK(seen->next->after.has_value() == !near);
        }
    }
}

TEST_CASE("a cancelled queue entry is deleted, and one that was served cannot be cancelled") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        hand.open(session_id{1});
        ids all;
        for (std::int64_t id = 100; id < 140; ++id) {
            hand.enqueue("job", session_id{1}, grant_id{id});
            all.push_back(grant_id{id});
        }
        CHECK(grant_id_of(hand.grant_next("job")) == grant_id{100});
        CHECK(hand.cancel({grant_id{100}}).empty());
        CHECK(hand.served("job", session_id{1}, grant_id{100}).has_value());
        CHECK(hand.cancel({}).empty());
        CHECK(hand.cancel({grant_id{999}}).empty());
        CHECK(hand.cancel({grant_id{101}}) == ids{grant_id{101}});
        CHECK(hand.cancel({grant_id{101}}).empty());
        CHECK(hand.cancel(all) == ids(all.begin() + 2, all.end()));
        CHECK(hand.entries_of(session_id{1}).waiting.empty());
        CHECK_FALSE(hand.release("job", session_id{1}, grant_id{100}).next.has_value());
    }
}

TEST_CASE("two enqueues with one grant id make one queue entry") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        hand.open(session_id{1});
        hand.enqueue("job", session_id{1}, grant_id{10});
        hand.enqueue("job", session_id{1}, grant_id{10});
        CHECK(database.number("select count(*) from rowlock_ticket") == 1);
    }
}

TEST_CASE("an enqueue that reads the lease finds what a look behind it finds") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        const bool reads = database.speaks() == sql::dialect::postgresql;
        std::int64_t last = 20;
        const auto look = [&] {
            const auto told = hand.queue().enqueue(
                hand.db(), {"job", session_id{2}, grant_id{++last}, "", "", std::nullopt}, soon());
            const auto seen = hand.leases().glance(hand.db(), "job", soon());
            CHECK(told.has_value() == reads);
            if (told) {
                CHECK(told->free == seen.free);
                CHECK(told->remaining >= seen.remaining);
                CHECK(told->remaining < seen.remaining + 20s);
            }
            CHECK(hand.cancel({grant_id{last}}).size() == 1);
            return seen;
        };
        CHECK(look().free);  // it has no row
        REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{10}));
        const auto held = look();
        CHECK_FALSE(held.free);
        CHECK(held.remaining > 40s);
        REQUIRE(hand.release("job", session_id{1}, grant_id{10}).freed);
        CHECK(look().free);
        REQUIRE(hand.try_acquire("job", session_id{1}, grant_id{11}, {.deadline_us = 30'000'000}));
        CHECK(look().remaining <= 30s);
        hand.end(session_id{1});
        CHECK(look().free);
    }
}

TEST_CASE("a grant copies thread, note and deadline from the queue entry to the lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        const std::string note = "it's \"quoted\" \\ {x} $1 \xC3\xA9";
        for (const bool by_release : {true, false}) {
            CAPTURE(by_release);
            if (by_release) REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).token > 0);
            hand.enqueue("job", session_id{2}, grant_id{22},
                         {.thread = "thread 7", .note = note, .deadline_us = 30'000'000});
            if (by_release) {
                REQUIRE(hand.release("job", session_id{1}, grant_id{10}).next.has_value());
            } else {
                REQUIRE(grant_id_of(hand.grant_next("job")) == grant_id{22});
            }
            const auto info = hand.leases().inspect(hand.db(), "job", soon());
            REQUIRE(info.has_value());
            REQUIRE(info->holder.has_value());
            CHECK(info->holder->thread == "thread 7");
            CHECK(info->holder->note == note);
            CHECK(info->holder->held_for < 20s);
            const auto grant = hand.served("job", session_id{2}, grant_id{22});
            REQUIRE(grant.has_value());
            REQUIRE(grant->deadline_us.has_value());
            CHECK(*grant->deadline_us > 10'000'000);
            CHECK(*grant->deadline_us <= 30'000'000);
            // The next grant keeps none of them.
            hand.enqueue("job", session_id{1}, grant_id{11});
            REQUIRE(hand.release("job", session_id{2}, grant_id{22}).next.has_value());
            CHECK(database.number("select count(*) from rowlock_lock where thread is null and "
                                  "note is null and deadline is null and session = 1") == 1);
            REQUIRE(hand.release("job", session_id{1}, grant_id{11}).freed);
            CHECK(database.number("select count(*) from rowlock_lock where acquired_at is null "
                                  "and session is null and grant_id is null") == 1);
        }
    }
}

TEST_CASE("a lease whose own deadline has passed is free for the queue") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        hand.enqueue("job", session_id{1}, grant_id{10}, {.deadline_us = 50'000});
        REQUIRE(grant_id_of(hand.grant_next("job")) == grant_id{10});
        hand.enqueue("job", session_id{2}, grant_id{22});
        CHECK(hand.entries_of(session_id{2}).waiting.at(0).remaining <= 50ms);
        REQUIRE(support::eventually(
            [&] { return hand.entries_of(session_id{2}).waiting.at(0).servable; }));
        CHECK(hand.entries_of(session_id{2}).waiting.at(0).remaining == 0us);
        CHECK(grant_id_of(hand.grant_next("job")) == grant_id{22});
        CHECK_FALSE(hand.release("job", session_id{1}, grant_id{10}).freed);
    }
}

TEST_CASE("a newcomer does not overtake the queue unless it barges, and its try writes nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        for (const char* row : {"absent", "present"}) {
            CAPTURE(row);
            hand.enqueue("job", session_id{2}, grant_id{22});
            const auto tried = hand.acquire("job", session_id{1}, grant_id{10});
            CHECK(tried.what == attempt::outcome::held);
            CHECK(tried.seen.free);
            CHECK(tried.seen.waited);
            CHECK(hand.acquire("job", session_id{2}, grant_id{23}).what ==
                  attempt::outcome::held);  // its own queue
            CHECK(hand.acquire("another", session_id{1}, grant_id{12}).what ==
                  attempt::outcome::granted);
            CHECK(hand.release("another", session_id{1}, grant_id{12}).freed);
            const std::string held = "select count(*) from rowlock_lock where session is not null";
            CHECK(database.number(held) == 0);
            const auto barging =
                hand.acquire("job", session_id{1}, grant_id{11}, {.barging = true});
            CHECK(barging.what == attempt::outcome::granted);
            CHECK(hand.acquire("job", session_id{1}, grant_id{13}, {.barging = true}).what ==
                  attempt::outcome::held);
            REQUIRE(hand.release("job", session_id{1}, grant_id{11}).next.has_value());
            REQUIRE(hand.release("job", session_id{2}, grant_id{22}).freed);
        }
    }
}

TEST_CASE("names_with_waiters() and leave() report the names with live waiters") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        names asked;
        for (int i = 0; i < 40; ++i) asked.push_back("it's \\ " + std::to_string(i));
        for (const std::size_t i : {3U, 17U, 39U}) {
            hand.enqueue(asked[i], session_id{1}, grant_id{100 + static_cast<std::int64_t>(i)});
        }
        hand.enqueue(asked[3], session_id{1}, grant_id{99});
        hand.enqueue(asked[5], session_id{2}, grant_id{98});
        hand.end(session_id{2});
        auto expected = names{asked[3], asked[17], asked[39]};
        std::sort(expected.begin(), expected.end());
        CHECK(hand.names_with_waiters(asked) == expected);
        CHECK(hand.names_with_waiters({}).empty());
        CHECK(hand.names_with_waiters({asked[5]}).empty());

        // A session that leaves gets the same answer, and only its row is deleted.
        hand.open(session_id{3});
        hand.open(session_id{4});
        CHECK(hand.leave(session_id{3}, asked) == expected);
        CHECK_FALSE(hand.is_live(session_id{3}));
        CHECK(hand.is_live(session_id{1}));
        CHECK(hand.leave(session_id{4}, {}).empty());
        CHECK(database.number("select count(*) from rowlock_session") == 2);
        CHECK(hand.leave(session_id{3}, {asked[5]}).empty());  // once more, after a lost reply
    }
}

TEST_CASE("queues_of_session() reports the queues that the end of a session affects") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        for (const std::int64_t id : {1, 2, 3}) {
            const std::string name = "lease " + std::to_string(id);
            REQUIRE(hand.acquire(name, session_id{1}, grant_id{id}).what ==
                    attempt::outcome::granted);
        }
        hand.enqueue("lease 1", session_id{2},
                     grant_id{21});  // waits for a lease of the dead session
        hand.enqueue("queue", session_id{1}, grant_id{11});
        hand.enqueue("queue", session_id{2}, grant_id{22});    // queues behind the dead session
        hand.enqueue("lease 2", session_id{1}, grant_id{12});  // has no live waiter
        hand.enqueue("elsewhere", session_id{2}, grant_id{23});
        hand.end(session_id{1});
        CHECK(hand.queues_of_session(session_id{1}) == names{"lease 1", "queue"});
        CHECK(grant_id_of(hand.grant_next("lease 1")) == grant_id{21});
        CHECK(grant_id_of(hand.grant_next("queue")) == grant_id{22});
        CHECK(hand.queues_of_session(session_id{1}) == names{});
        CHECK(hand.queues_of_session(session_id{4711}) == names{});
    }
}

TEST_CASE("the entries of an ended session are deleted, and no others") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        for (const std::int64_t id : {11, 12, 13}) {
            hand.enqueue("a", session_id{1}, grant_id{id});
            hand.enqueue("b", session_id{2}, grant_id{id + 10});
        }
        hand.delete_entries_of(session_id{1});
        CHECK(database.number("select count(*) from rowlock_ticket") == 6);  // it lives
        hand.end(session_id{1});
        hand.delete_entries_of(session_id{1});
        CHECK(database.number("select count(*) from rowlock_ticket where session = 1") == 0);
        CHECK(hand.entries_of(session_id{2}).waiting.size() == 3);
        hand.delete_entries_of(session_id{1});
        hand.enqueue("a", session_id{3}, grant_id{31});  // of a session whose row is gone
        hand.delete_entries_of(session_id{3});
        CHECK(database.number("select count(*) from rowlock_ticket") == 3);
    }
}

TEST_CASE("PostgreSQL: the end of a session reads only leases with waiters") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const protocol_connection hand{database};
        database.run(
            "insert into rowlock_lock (name, token, changed_at) "
            "select 'n' || i, 1, clock_timestamp() from generate_series(1, 5000) i");
        database.run(
            "insert into rowlock_session (id, owner, host, pid, program, ttl_us, "
            "expires_at, opened_at) select i, 'o', 'h', 1, 'p', 1, "
            "clock_timestamp() + interval '1 h', clock_timestamp() "
            "from generate_series(1, 2000) i");
        database.run("analyze rowlock_lock");
        database.run("analyze rowlock_session");
        std::string text = hand.statements()("queues_of_session").text();
        for (auto at = text.find("$1"); at != std::string::npos; at = text.find("$1")) {
            text.replace(at, 2, "5");
        }
        const auto plan = hand.db().query("explain " + text, soon());
        const auto all = lines_of(plan);
        CAPTURE(all);
        CHECK(all.find("Seq Scan on " + database.prefix() + "lock") == std::string::npos);
    }
}

TEST_CASE("PostgreSQL: the rows of held leases are not each compared with each name") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const protocol_connection hand{database};
        const auto add = [&](int first, int last) {
            database.run(
                "insert into rowlock_lock (name, token, session, grant_id, changed_at) "
                "select 'n' || l, l, 1, l, clock_timestamp() from generate_series(" +
                std::to_string(first) + ", " + std::to_string(last) + ") l");
        };
        const std::vector<std::string> one{"n1"};
        const support::protocols by{hand.statements()};
        // A plan for a small table, which stays until the table is analyzed again.
        add(1, 20);
        database.run("analyze rowlock_lock");
        hand.db().query("set plan_cache_mode = force_generic_plan", soon());
        CHECK(by.queue().held_of(hand.db(), session_id{1}, one, soon()).size() == 1);
        add(21, 1000);
        const auto prepared = hand.db().query(
            "select name from pg_prepared_statements where statement like '%rowlock held_leases%'",
            soon());
        REQUIRE(prepared.rows() == 1);
        std::string names = "{n1";
        for (int i = 2; i <= 1000; ++i) names += ",n" + std::to_string(i);
        const auto plan =
            hand.db().query("explain (analyze, costs off, timing off) execute \"" +
                                std::string{prepared.text(0, 0)} + "\"(1, '" + names + "}')",
                            soon());
        const auto all = lines_of(plan);
        CAPTURE(all);
        CHECK(all.find("rows=1000") != std::string::npos);
        CHECK(all.find("Seq Scan") == std::string::npos);
        CHECK(all.find("Index Cond: (name = ANY") != std::string::npos);
    }
}

TEST_CASE("PostgreSQL: the fast paths find that no session waits without reading other queues") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const protocol_connection hand{database};
        database.run(
            "insert into rowlock_ticket (name, session, grant_id, enqueued_at) "
            "select 'n' || i % 20, i, i, clock_timestamp() from generate_series(1, 20000) i");
        database.run("analyze rowlock_ticket");
        hand.db().query("set plan_cache_mode = force_generic_plan", soon());
        const auto& statements = hand.statements();
        const std::vector<std::pair<std::string, std::string>> calls{
            {statements("reacquire").text(), "'free', 1, 2, null, null, null, 3"},
            {statements("release_unwaited").text(), "'free', 1, 2, 0"},
            {statements("acquire_all").text(), "1, '{a,b}', '{1,2}', '{a,b}', '{a,b}', '{1,2}'"},
            {statements("reacquire_all").text(),
             "1, '{a,b}', '{1,2}', '{1,2}', '{a,b}', '{a,b}', '{1,2}'"},
            {statements("release_all").text(), "1, '{a,b}', '{1,2}', 0"}};
        for (const auto& [text, values] : calls) {
            hand.db().query("prepare short_way as " + text, soon());
            const auto plan = hand.db().query("explain execute short_way(" + values + ")", soon());
            hand.db().query("deallocate short_way", soon());
            const auto all = lines_of(plan);
            CAPTURE(all);
            CHECK(all.find("Seq Scan on " + database.prefix() + "ticket") == std::string::npos);
        }
    }
}

TEST_CASE(
    "PostgreSQL: the fast paths skip no deleted tickets of waiters that were served long ago") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const protocol_connection hand{database};
        hand.open(session_id{1});
        REQUIRE(hand.acquire("queue", session_id{1}, grant_id{11}).what ==
                attempt::outcome::granted);
        const auto reader = database.source().connect(soon());
        reader->query("begin isolation level repeatable read", soon());
        reader->query("select 1 from pg_class",
                      soon());  // keeps vacuum from removing rows that are deleted later
        database.run(
            "insert into rowlock_ticket (name, session, grant_id, enqueued_at) "
            "select 'queue', i, i, clock_timestamp() from generate_series(1, 20000) i");
        database.run(
            "update rowlock_lock set served = (select max(w.ticket) from rowlock_ticket w)");
        database.run("delete from rowlock_ticket");
        database.run("analyze rowlock_ticket");
        const auto& statements = hand.statements();
        hand.db().query("prepare short_way as " + statements("release_unwaited").text(), soon());
        const auto plan = hand.db().query(
            "explain (analyze, buffers, costs off, timing off) "
            "execute short_way('queue', 1, 11, 0)",
            soon());
        reader->query("rollback", soon());
        const auto all = lines_of(plan);
        CAPTURE(all);
        const auto at = all.find("Buffers: shared hit=");
        REQUIRE(at != std::string::npos);
        CHECK(std::stoi(all.substr(at + 20)) < 50);
    }
}

// shows: promise-9
TEST_CASE("a reaper alone keeps a queue moving") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        hand.open(session_id{1}, {.ttl = 1ms});
        for (const std::int64_t session : {2, 3}) hand.open(session_id{session});
        hand.open(session_id{4});
        hand.enqueue("free", session_id{2}, grant_id{21});
        hand.enqueue("free", session_id{3}, grant_id{31});
        REQUIRE(hand.acquire("orphan", session_id{4}, grant_id{41}).what ==
                attempt::outcome::granted);
        hand.enqueue("orphan", session_id{2}, grant_id{22});
        REQUIRE(hand.acquire("held", session_id{2}, grant_id{23}).what ==
                attempt::outcome::granted);
        hand.enqueue("held", session_id{3}, grant_id{33});
        REQUIRE(hand.acquire("alone", session_id{4}, grant_id{42}).what ==
                attempt::outcome::granted);
        hand.end(session_id{4});
        const auto reaped = reap(database.source(), database.reaping(60s, 20s));
        CHECK(reaped.leases_handed_over == 2);
        CHECK(reaped.leases_freed == 1);
        CHECK(hand.served("free", session_id{2}, grant_id{21}).has_value());
        CHECK(hand.served("orphan", session_id{2}, grant_id{22}).has_value());
        CHECK(hand.entries_of(session_id{3}).waiting.size() == 2);
    }
}

TEST_CASE(
    "a reclaim moves the predecessor's leases past their queues, and its queue entries are dead") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        database.run("update rowlock_session set owner = 'me' where id in (1, 3)");
        REQUIRE(hand.acquire("kept", session_id{1}, grant_id{10}).what ==
                attempt::outcome::granted);
        hand.enqueue("kept", session_id{2}, grant_id{21});
        hand.enqueue("queue", session_id{1}, grant_id{11});
        hand.enqueue("queue", session_id{2}, grant_id{22});
        CHECK(hand.leases().reclaim(hand.db(), "me", session_id{3}, {}, soon()) ==
              std::vector{session_id{1}});
        CHECK(grant_id_of(hand.grant_next("kept")) == grant_id{});
        CHECK(database.number("select session from rowlock_lock where name = 'kept'") == 3);
        CHECK(hand.queues_of_session(session_id{1}) == names{"queue"});
        CHECK(grant_id_of(hand.grant_next("queue")) == grant_id{22});
    }
}

TEST_CASE("a newcomer does not get a lease that a dead session left to its waiters") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).what == attempt::outcome::granted);
        hand.enqueue("job", session_id{2}, grant_id{22});
        database.run("update rowlock_session set expires_at = opened_at where id = 1");
        REQUIRE(hand.leases().sessions().end_expired(hand.db(), session_id{1}, soon()));
        client newcomer{database.source(), database.options()};
        CHECK_FALSE(newcomer.try_acquire("job").has_value());
        CHECK_FALSE(hand.served("job", session_id{2}, grant_id{22})
                        .has_value());  // no client has called grant_next yet
        const auto seen = hand.leases().probe(hand.db(), "job", session_id{2}, soon());
        CHECK(seen.free);
        CHECK_FALSE(seen.holder_expired);
    }
}

// shows: fault-break-now
TEST_CASE("a forced release of one holder does not affect the next") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        client other{database.source(), database.options()};
        auto first = locks.acquire("job");
        const auto shown = other.inspect("job").value().token;
        first.release();
        CHECK_FALSE(other.force_release("job", shown));  // it is free
        const auto second = locks.acquire("job");
        CHECK_FALSE(other.force_release("job", shown));
        CHECK(other.inspect("job").value().holder.has_value());
        CHECK(other.force_release("job", second.token()));
        CHECK_FALSE(other.inspect("job").value().holder.has_value());
    }
}

// shows: fault-break-now
TEST_CASE("a lost reply and an extension do not pass for a forced release") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool by_token : {true, false}) {
            CAPTURE(by_token);
            client locks{database.source(), database.options()};
            support::interception network;
            client other{network.wrap(database.source()), database.options()};
            auto held = locks.acquire("job", {.max_duration = 1h});
            bool probed = false;
            bool lost = false;
            network.before([&](std::string_view what) {
                if (!std::exchange(probed, what == "probe") || std::exchange(lost, true)) return;
                held.extend(2h);
                support::interception::lose_reply();
            });
            if (by_token) {
                CHECK_FALSE(other.force_release("job", held.token()));
                CHECK(held.held());
                held.release();
            } else {  // control: the same hold, whatever its token
                CHECK(other.force_release("job"));
            }
            CHECK(lost);
            CHECK_FALSE(other.inspect("job").value().holder.has_value());
        }
    }
}

TEST_CASE("a lease that was released by force goes to the queue by grant_next") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        const auto first = hand.acquire("job", session_id{1}, grant_id{10});
        hand.enqueue("job", session_id{2}, grant_id{22});
        CHECK(hand.force_release("job"));
        CHECK(hand.acquire("job", session_id{1}, grant_id{11}).what == attempt::outcome::held);
        const auto next = hand.grant_next("job");
        REQUIRE(next.has_value());
        CHECK(next->grant_id == grant_id{22});
        CHECK(next->token > first.token + 1);  // the forced release raised it too
    }
}

TEST_CASE("only the youngest queue entry of a deadlock cycle reports it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3, 4}) hand.open(session_id{session});
        REQUIRE(hand.acquire("a", session_id{1}, grant_id{11}, {.thread = "t1"}).what ==
                attempt::outcome::granted);
        REQUIRE(hand.acquire("b", session_id{2}, grant_id{22}, {.thread = "t2"}).what ==
                attempt::outcome::granted);
        REQUIRE(hand.acquire("c", session_id{3}, grant_id{33}, {.thread = "t3"}).what ==
                attempt::outcome::granted);
        hand.enqueue("b", session_id{4}, grant_id{400},
                     {.thread = "t4"});  // queues ahead, in no cycle
        hand.enqueue("b", session_id{1}, grant_id{100}, {.thread = "t1"});
        CHECK(hand.deadlocks(session_id{1}).empty());
        SUBCASE("of two") {
            hand.enqueue("a", session_id{2}, grant_id{200}, {.thread = "t2"});
            CHECK(hand.deadlocks(session_id{1}).empty());
            CHECK(hand.deadlocks(session_id{3}).empty());
            CHECK(hand.deadlocks(session_id{4}).empty());
            const auto found = hand.deadlocks(session_id{2});
            REQUIRE(found.size() == 1);
            CHECK(found[0].grant_id == grant_id{200});
            CHECK(found[0].description ==
                  "a (held by program[1]@host/t1) -> b (held by program[2]@host/t2) -> a");
            CHECK(hand.cancel({grant_id{200}}) == ids{grant_id{200}});
            CHECK(hand.deadlocks(session_id{2}).empty());
        }
        SUBCASE("of three") {
            hand.enqueue("c", session_id{2}, grant_id{200}, {.thread = "t2"});
            CHECK(hand.deadlocks(session_id{2}).empty());
            hand.enqueue("a", session_id{3}, grant_id{300}, {.thread = "t3"});
            CHECK(hand.deadlocks(session_id{1}).empty());
            CHECK(hand.deadlocks(session_id{2}).empty());
            const auto found = hand.deadlocks(session_id{3});
            REQUIRE(found.size() == 1);
            CHECK(found[0].grant_id == grant_id{300});
            CHECK(found[0].description ==
                  "a (held by program[1]@host/t1) -> b (held by program[2]@host/t2) -> "
                  "c (held by program[3]@host/t3) -> a");
        }
        SUBCASE("not through another thread of the holder") {
            hand.enqueue("a", session_id{2}, grant_id{200}, {.thread = "another"});
            CHECK(hand.deadlocks(session_id{1}).empty());
            CHECK(hand.deadlocks(session_id{2}).empty());
        }
        SUBCASE("not by waiters outside the cycle, nor for a thread that waits for itself") {
            hand.enqueue("a", session_id{2}, grant_id{200}, {.thread = "t2"});
            hand.enqueue("a", session_id{4}, grant_id{401}, {.thread = "t5"});
            CHECK(hand.deadlocks(session_id{4}).empty());
            hand.enqueue("c", session_id{3}, grant_id{301}, {.thread = "t3"});
            CHECK(hand.deadlocks(session_id{3}).empty());
        }
        SUBCASE("not through an ended session") {
            hand.enqueue("a", session_id{2}, grant_id{200}, {.thread = "t2"});
            hand.end(session_id{1});
            CHECK(hand.deadlocks(session_id{2}).empty());
        }
        SUBCASE("not through an entry whose caller's limit has passed") {
            hand.enqueue("a", session_id{2}, grant_id{200}, {.thread = "t2"});
            for (const std::string entry : {"100", "200"}) {
                CAPTURE(entry);
                const auto set = [&](const std::string& limit) {
                    database.run("update rowlock_ticket set waits_until = " + limit +
                                 " where grant_id = " + entry);
                };
                CHECK(hand.deadlocks(session_id{2}).size() == 1);
                set("enqueued_at");
                CHECK(hand.deadlocks(session_id{1}).empty());
                CHECK(hand.deadlocks(session_id{2}).empty());
                set("null");
            }
        }
        SUBCASE("also through waiters ahead in the queue") {
            // 3 waits for b behind 4, and 4 also waits for c, which 3 holds.
            hand.enqueue("c", session_id{4}, grant_id{402}, {.thread = "t4"});
            hand.enqueue("b", session_id{3}, grant_id{300}, {.thread = "t3"});
            const auto found = hand.deadlocks(session_id{3});
            REQUIRE(found.size() == 1);
            CHECK(found[0].description ==
                  "b (first waited for by program[4]@host/t4) -> c (held by program[3]@host/t3) "
                  "-> b");
            CHECK(hand.deadlocks(session_id{4}).empty());
        }
    }
}

TEST_CASE("a long cycle is found, and a longer path does not hide a shorter one") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_connection hand{database};
        constexpr std::int64_t last = 80;
        const auto name = [](std::int64_t i) { return "n" + std::to_string(i); };
        hand.run("begin");  // one commit for all
        // Each session holds one name and waits for the next, the last for the name of session 200.
        for (std::int64_t i = 1; i <= last; ++i) {
            hand.open(session_id{i});
            REQUIRE(hand.acquire(name(i), session_id{i}, grant_id{i}, {.thread = "t"}).what ==
                    attempt::outcome::granted);
        }
        hand.open(session_id{200});
        hand.open(session_id{201});
        REQUIRE(hand.acquire("ours", session_id{200}, grant_id{200}, {.thread = "t"}).what ==
                attempt::outcome::granted);
        for (std::int64_t i = 1; i < last; ++i) {
            hand.enqueue(name(i + 1), session_id{i}, grant_id{1000 + i}, {.thread = "t"});
        }
        hand.enqueue("ours", session_id{last}, grant_id{1000 + last}, {.thread = "t"});
        bool shortcut = false;
        SUBCASE("long") {}
        SUBCASE("short") {
            shortcut = true;
            hand.enqueue(name(1), session_id{201}, grant_id{2000}, {.thread = "t"});
            hand.enqueue(name(last / 2), session_id{201}, grant_id{2001}, {.thread = "t"});
        }
        hand.run("commit");
        CHECK(hand.deadlocks(session_id{200}).empty());
        hand.enqueue(name(1), session_id{200}, grant_id{3000}, {.thread = "t"});
        const auto found = hand.deadlocks(session_id{200});
        REQUIRE(found.size() == 1);
        CHECK(found[0].grant_id == grant_id{3000});
        CHECK(found[0].description.size() < 4000);
        const auto& text = found[0].description;
        CHECK((text.find("first waited for by program[201]") != std::string::npos) == shortcut);
        CHECK(text.substr(text.rfind("ours"))
                  .starts_with("ours (held by program[200]@host/t) -> n1"));
        for (std::int64_t i = 1; i <= last; ++i) {
            if (i % 16 == 0) CHECK(hand.deadlocks(session_id{i}).empty());
        }
    }
}

TEST_CASE("the search for cycles is fast with many waiters of clients that are one node each") {
    if (support::lock_database database{support::backend::sqlite}; database.there()) {
        const protocol_connection hand{database};
        constexpr std::int64_t clients = 10;
        hand.run("begin immediate");
        for (std::int64_t i = 1; i <= clients + 1; ++i) hand.open(session_id{i});
        REQUIRE(
            hand.acquire("job", session_id{clients + 1}, grant_id{1}, {.thread = "client"}).what ==
            attempt::outcome::granted);
        for (std::int64_t i = 0; i < 100 * clients; ++i) {
            hand.enqueue("job", session_id{1 + i % clients}, grant_id{100 + i},
                         {.thread = "client"});
        }
        hand.run("commit");
        const auto time_to_search = [&] {
            const auto before = std::chrono::steady_clock::now();
            CHECK(hand.deadlocks(session_id{clients}).empty());
            return std::chrono::steady_clock::now() - before;
        };
        CHECK(support::at_best(2s * support::slowed, time_to_search) < 2s * support::slowed);
    }
}

// The ticket was drawn long before it committed. An update of `served` stands for later tickets
// that were served meanwhile.
TEST_CASE("a queue entry behind the watermark is reported, and is found again after the reset") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2}) hand.open(session_id{session});
        REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).what == attempt::outcome::granted);
        hand.enqueue("job", session_id{2}, grant_id{20});
        const auto before = hand.entries_of(session_id{2});
        REQUIRE(before.waiting.size() == 1);
        CHECK_FALSE(before.waiting[0].behind_watermark);
        const bool marks = hand.db().speaks() == sql::dialect::postgresql;
        if (marks) {
            database.run("update rowlock_lock set served = " + to_string(before.waiting[0].ticket) +
                         " + 300");
            CHECK(hand.names_with_waiters({"job"}).empty());  // the control: the entry is not found
        }
        const auto behind_watermark = hand.entries_of(session_id{2});
        REQUIRE(behind_watermark.waiting.size() == 1);
        CHECK(behind_watermark.waiting[0].behind_watermark == marks);
        CHECK(behind_watermark.waiting[0].position == 1);

        hand.queue().reset_watermark(hand.db(), "job", behind_watermark.waiting[0].ticket, soon());

        CHECK_FALSE(hand.entries_of(session_id{2}).waiting[0].behind_watermark);
        CHECK(hand.names_with_waiters({"job"}) == names{"job"});
        const auto released = hand.release("job", session_id{1}, grant_id{10});
        REQUIRE(released.next);
        CHECK(released.next->grant_id == grant_id{20});
    }
}

TEST_CASE("entries_at() reads only the session's entries that were asked for") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        REQUIRE(hand.acquire("job", session_id{1}, grant_id{10}).what == attempt::outcome::granted);
        hand.enqueue("job", session_id{3}, grant_id{30});
        hand.enqueue("job", session_id{2}, grant_id{20});
        const std::array asked{grant_id{20}, grant_id{30}};  // the second is another session's
        const auto seen = hand.queue().entries_at(hand.db(), session_id{2}, asked, soon());
        CHECK(seen.session_live);
        REQUIRE(seen.waiting.size() == 1);
        CHECK(seen.waiting[0].grant_id == grant_id{20});
        CHECK(seen.waiting[0].position == 2);
        CHECK_FALSE(seen.waiting[0].servable);
    }
}
