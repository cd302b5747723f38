// Races between two clients. Open transactions and hooks force the orders. Every case names the
// fault, and has a control that shows it where one is possible.

#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/queues.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <future>
#include <string>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using protocol::attempt;
using support::eventually;
using support::kind_of;
using support::protocol_session;
using support::somebody_waits_for_a_row;
using support::soon;

namespace {

/// Waits until session 1 has expired by the database's clock.
bool session_1_expires(support::lock_database& database) {
    const bool postgresql = database.speaks() == sql::dialect::postgresql;
    const std::string now = postgresql
                                ? "clock_timestamp()"
                                : "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";
    return eventually([&] {
        return database.number(
                   "select count(*) from rowlock_session where id = 1 "
                   "and expires_at <= " +
                   now) == 1;
    });
}

/// Lets session 1 expire, and `act` before that. `act` returns false if it came too late, on a slow
/// machine.
template <typename Action>
bool before_it_expires(const protocol_session& other, const Action& act) {
    for (auto left = 300ms; left < 60s; left *= 2) {
        other.leases().sessions().extend(other.db(), session_id{1}, left, soon());
        if (act()) return true;
    }
    return false;
}

}  // namespace

// shows: promise-1
TEST_CASE(
    "a take-over that waited for the row does not steal it from a session younger than its "
    "snapshot") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session first{database, session_id{1}};
        const protocol_session waiter{database, session_id{2}};
        REQUIRE(first.acquire("job", grant_id{11}).what == attempt::outcome::granted);
        first.end();  // the lease is free now

        // The row is locked. The waiter finds it free in its snapshot and waits. Meanwhile session
        // 3 is opened and granted the lease.
        const auto blocker = database.connect();
        blocker->query("begin", soon());
        blocker->query("select * from " + database.prefix() + "lock where name = 'job' for update",
                       soon());
        auto late =
            std::async(std::launch::async, [&] { return waiter.acquire("job", grant_id{22}); });
        REQUIRE(somebody_waits_for_a_row(database));
        const std::string lease = database.prefix() + "lock";
        const protocol_session young{database, session_id{3}};
        blocker->query("update " + lease +
                           " set session = 3, grant_id = 33, token = token + 1 "
                           "where name = 'job'",
                       soon());
        blocker->query("commit", soon());

        CHECK(late.get().what == attempt::outcome::contested);
        CHECK(database.number("select session from rowlock_lock where name = 'job'") == 3);
        CHECK(waiter.acquire("job", grant_id{23}).what == attempt::outcome::held);
    }
}

// shows: newer-rows
TEST_CASE(
    "a take-over that waited for the row rereads it where MariaDB isolates snapshots; control: "
    "without the client's settings it fails") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const std::string lease = database.prefix() + "lock";
        const protocol_session first{database, session_id{1}};
        const protocol_session waiter{database, session_id{2}};
        // The default of every new connection from MariaDB 11.6 on.
        const std::string isolated = "set session innodb_snapshot_isolation = on";
        if (kind_of([&] { waiter.db().query(isolated, soon()); }) != errc{}) {
            MESSAGE("this server does not have innodb_snapshot_isolation");
            return;
        }
        for (const bool set_up : {true, false}) {
            CAPTURE(set_up);
            REQUIRE(first.acquire("job", grant_id{11}).what == attempt::outcome::granted);
            database.run("update rowlock_lock set session = null, grant_id = null");
            waiter.db().query(isolated, soon());
            if (set_up) waiter.leases().sessions().set_up(waiter.db(), 5s, soon());
            const auto blocker = database.connect();
            blocker->query("begin", soon());
            blocker->query("update " + lease + " set changed_at = changed_at + 1", soon());
            auto late =
                std::async(std::launch::async, [&] { return waiter.acquire("job", grant_id{22}); });
            REQUIRE(somebody_waits_for_a_row(database));
            blocker->query("commit", soon());
            if (set_up) {
                CHECK(late.get().what == attempt::outcome::granted);
            } else {
                CHECK(kind_of([&] { (void)late.get(); }) == errc::conflict);
            }
            database.run("update rowlock_lock set session = null, grant_id = null");
        }
    }
}

// shows: promise-1
TEST_CASE(
    "control: the same interleaving steals the lease where the write judges sessions itself") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const protocol_session first{database, session_id{1}};
        REQUIRE(first.acquire("job", grant_id{11}).what == attempt::outcome::granted);
        first.end();
        const std::string lease = database.prefix() + "lock";
        const std::string session = database.prefix() + "session";

        const auto blocker = database.connect();
        blocker->query("begin", soon());
        blocker->query("select * from " + lease + " where name = 'job' for update", soon());
        const auto thief = database.connect();
        auto late = std::async(std::launch::async, [&] {
            return thief
                ->query("update " + lease +
                            " l set session = 2, token = token + 1 "
                            "where name = 'job' and not exists (select from " +
                            session + " s where s.id = l.session and not s.ended)",
                        soon())
                .affected();
        });
        REQUIRE(somebody_waits_for_a_row(database));
        const protocol_session young{database, session_id{3}};
        blocker->query("update " + lease +
                           " set session = 3, grant_id = 33, token = token + 1 "
                           "where name = 'job'",
                       soon());
        blocker->query("commit", soon());
        CHECK(late.get() == 1);  // session 3 is live, and loses its lease
    }
}

// shows: promise-3
TEST_CASE("a heartbeat that comes after its session was ended changes nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const auto move_expiry = [&](const std::string& hours) {
            database.run("update rowlock_session set expires_at = expires_at + " +
                         (postgresql ? "interval '" + hours + " hours'" : hours + " * 3600000000") +
                         " where id = 1");
        };
        const protocol_session holder{database, session_id{1}};
        const protocol_session ender{database, session_id{2}};
        CHECK_FALSE(ender.leases().sessions().end_expired(ender.db(), session_id{1}, soon()));
        move_expiry("-2");
        REQUIRE(ender.leases().sessions().end_expired(ender.db(), session_id{1}, soon()));
        CHECK_FALSE(holder.heartbeat());
        CHECK_FALSE(holder.is_live());
        // Not even with a clock far in the past, by which the session would not have expired.
        move_expiry("4");
        CHECK_FALSE(holder.heartbeat());
    }
}

// shows: promise-3
TEST_CASE(
    "the end of an expired session waits for a heartbeat in flight and then leaves the session "
    "alone") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const protocol_session ender{database, session_id{2}};
        // The heartbeat has run but not committed while the old expiry passes.
        REQUIRE(before_it_expires(ender, [&] {
            holder.db().query("begin", soon());
            if (holder.heartbeat()) return true;
            holder.db().query("rollback", soon());
            return false;
        }));
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        REQUIRE(session_1_expires(database));
        auto ended = std::async(std::launch::async, [&] {
            return ender.leases().sessions().end_expired(ender.db(), session_id{1}, soon());
        });
        REQUIRE(somebody_waits_for_a_row(database));
        // A second heartbeat in the same transaction, as if it were committed now.
        holder.db().query(
            "update " + database.prefix() + "session set expires_at = " +
                (postgresql ? "clock_timestamp() + interval '1 hour'" : "expires_at + 3600000000") +
                " where id = 1",
            soon());
        holder.db().query("commit", soon());
        CHECK_FALSE(ended.get());
        CHECK(holder.is_live());
    }
}

// shows: promise-3
TEST_CASE("a heartbeat that waited for its row past the expiry does not revive the session") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const protocol_session other{database, session_id{2}};
        const auto blocker = database.source().connect(soon());  // no limit ends its transaction
        std::future<bool> beat;
        REQUIRE(before_it_expires(other, [&] {
            blocker->query("begin", soon());
            blocker->query("select * from " + database.prefix() + "session where id = 1 for update",
                           soon());
            beat = std::async(std::launch::async, [&] { return holder.heartbeat(); });
            // One that came after the expiry does not wait for the row.
            if (somebody_waits_for_a_row(database) && !support::has_ended(beat)) return true;
            blocker->query("rollback", soon());
            return false;
        }));
        REQUIRE(session_1_expires(database));
        blocker->query("rollback", soon());  // an unchanged row, which PostgreSQL does not re-check
        CHECK_FALSE(beat.get());
    }
}

// shows: promise-7
TEST_CASE(
    "after a forced release a lease is granted to only one of two sessions that probed at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session a{database, session_id{1}};
        const protocol_session b{database, session_id{2}};
        for (const char* row : {"absent", "present"}) {
            CAPTURE(row);
            const std::string lease = database.prefix() + "lock";
            const auto blocker = database.connect();
            blocker->query("begin", soon());
            if (std::string_view{row} == "absent") {
                const bool postgresql = database.speaks() == sql::dialect::postgresql;
                blocker->query("insert into " + lease +
                                   " (name, token, changed_at) values ('job', 1, " +
                                   (postgresql ? "now()" : "0") + ")",
                               soon());
            } else {
                blocker->query("select * from " + lease + " where name = 'job' for update", soon());
            }
            const std::int64_t id = std::string_view{row} == "absent" ? 100 : 200;
            std::array<std::future<attempt>, 2> takers{
                std::async(std::launch::async, [&] { return a.acquire("job", grant_id{id + 1}); }),
                std::async(std::launch::async, [&] { return b.acquire("job", grant_id{id + 2}); })};
            REQUIRE(somebody_waits_for_a_row(database));
            blocker->query("rollback", soon());
            int granted = 0;
            for (auto& taker : takers) {
                try {
                    if (taker.get().what == attempt::outcome::granted) ++granted;
                } catch (const error& failure) {
                    // InnoDB: two inserts after one that was rolled back. A client repeats them.
                    CHECK(failure.kind() == errc::deadlock);
                }
            }
            CHECK(granted == 1);
            database.run("update rowlock_lock set session = null, grant_id = null");
        }
    }
}

// shows: promise-3
TEST_CASE("a session that expired a moment before is granted nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_session late{database, session_id{1}, {.ttl = 100ms}};
        REQUIRE(eventually([&] { return !late.is_live(); }));
        CHECK(late.acquire("job", grant_id{11}).what == attempt::outcome::session_dead);
        CHECK(database.number("select count(*) from rowlock_lock where session = 1") == 0);
    }
}

TEST_CASE("a client whose session is ended during an acquire acquires in a new session") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        support::interception network;
        client locks{network.wrap(database.source()), database.watchful()};
        const auto first = locks.acquire("other");
        // The database ends the session right before the acquire's statement.
        std::atomic<bool> once{true};
        network.before([&](std::string_view name) {
            if ((name == "acquire" || name == "probe") && once.exchange(false)) {
                database.run(database.speaks() == sql::dialect::postgresql
                                 ? "update rowlock_session set ended = true"
                                 : "update rowlock_session set ended = 1");
            }
        });
        const auto lease = locks.acquire("job");
        CHECK(lease.held());
        CHECK(lease.session_id() != first.session_id());
        CHECK_FALSE(first.held());
        CHECK(locks.stats().sessions == 2);
        CHECK(session_id{database.number("select session from rowlock_lock where name = 'job'")} ==
              lease.session_id());
    }
}

ROWLOCK_SIMULATED_CASE("a client that was stopped during a grant never returns an expired success",
                       database) {
    support::interception network;
    client locks{network.wrap(database.source()), database.options({.ttl = 4s, .margin = 200ms})};
    locks.acquire("warm up").release();
    const auto thread = std::this_thread::get_id();
    std::atomic<bool> once{true};
    std::promise<void> stopped;
    auto resumed = stopped.get_future().share();
    network.after([&](std::string_view name) {
        const bool granting = name == "acquire" || name == "take" || name == "insert_lease";
        if (std::this_thread::get_id() == thread && granting && once.exchange(false)) {
            // As if the process had been stopped right after the grant: it sends no heartbeat
            // until another client has ended the session.
            const protocol_session other{database, session_id{9}};
            const auto ours =
                database.number("select session from rowlock_lock where name = 'job'");
            REQUIRE(eventually([&] {
                return other.leases().sessions().end_expired(other.db(), session_id{ours}, soon());
            }));
            stopped.set_value();
        }
    });
    network.before([&](std::string_view name) {
        if (name == "heartbeat" && once) return;
        if (name == "heartbeat" && std::this_thread::get_id() != thread) resumed.wait();
    });
    const auto lease = locks.acquire("job");
    CHECK(lease.held());
    CHECK(lease.session_id() ==
          session_id{database.number("select session from rowlock_lock where name = 'job'")});
    CHECK(locks.stats().sessions == 2);
}

// shows: promise-7
TEST_CASE("two sessions of one owner that reclaim at once: one gets each lease, and tokens rise") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session before{database, session_id{1}};
        for (int i = 0; i < 5; ++i) {
            REQUIRE(before.acquire("job " + std::to_string(i), grant_id{10 + i}).what ==
                    attempt::outcome::granted);
        }
        const protocol_session a{database, session_id{2}};
        const protocol_session b{database, session_id{3}};
        const auto reclaim = [](const protocol_session& who) {
            for (;;) {
                try {
                    who.leases().reclaim(who.db(), "owner", who.id(), {}, soon());
                    return;
                } catch (const error& failure) {
                    if (!failure.retryable()) throw;
                }
            }
        };
        auto first = std::async(std::launch::async, reclaim, std::cref(a));
        auto second = std::async(std::launch::async, reclaim, std::cref(b));
        first.get();
        second.get();
        // One of the two ended the other. Each lease is free or held by a live session.
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        CHECK(database.number(std::string{"select count(*) from rowlock_session where "} +
                              (postgresql ? "not ended" : "ended = 0")) <= 1);
        CHECK(database.number("select count(*) from rowlock_lock where token >= 2") == 5);
    }
}
