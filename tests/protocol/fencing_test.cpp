// Races between fenced transactions and take-overs, forced releases, heartbeats, reclaims and the
// reaper. Open transactions force the orders. Each protection has a control without it.

#include "transaction/fencing/fencing.hpp"

#include "lock/client/reap_round.hpp"
#include "sql/server_facts.hpp"
#include "support/blocked.hpp"
#include "support/child.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include "support/servers.hpp"
#include "support/unhurried.hpp"
#include "support/unnamed_server.hpp"
#include "support/waits.hpp"
#include <rowlock/rowlock.hpp>
#include <rowlock/testing.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using detail::verdict;
using protocol::attempt;
using support::eventually;
using support::kind_of;
using support::protocol_session;
using support::somebody_waits_for_a_row;
using support::soon;

namespace {

const char* begin_of(const support::lock_database& database) {
    return database.speaks() == sql::dialect::sqlite ? "begin immediate" : "begin";
}

/// The application's own connection, without a client's settings.
std::unique_ptr<sql::connection> application(const support::lock_database& database) {
    return database.source().connect(soon());
}

/// Acquires as a client does: ends an expired holder's session first.
std::int64_t take_over(const protocol_session& by, std::string_view name, grant_id grant_id) {
    for (;;) {
        const auto tried = by.acquire(name, grant_id);
        if (tried.what == attempt::outcome::granted) return tried.token;
        if (tried.seen.holder_expired) {
            by.leases().sessions().end_expired(by.db(), tried.seen.session, soon());
        }
    }
}

/// Fences "job" in the transaction on `app`, without a client's own check of its lease.
verdict fence_job(const protocol_session& holder, sql::connection& app, std::int64_t token,
                  std::chrono::milliseconds idle = 60s) {
    return detail::make_fencing(holder.statements())
        ->fence(app, {"job", holder.id(), token, grant_id{}}, {.statement = 20s, .idle = idle},
                soon());
}

/// Makes the session expire, without a change of its revision.
void let_expire(const protocol_session& session) {
    session.leases().sessions().extend(session.db(), session.id(), 1us, soon());
}

/// What a server claims to be.
enum class claims : unsigned char { nothing, to_be_galera, to_be_mysql };

/// A connection that does not report whether it is in a transaction, like Connector/C++, to a
/// MariaDB that claims to be another server.
class reticent_connection final : public sql::connection {
public:
    explicit reticent_connection(std::unique_ptr<sql::connection> inner, claims what = {})
        : claims_{what}, inner_{std::move(inner)} {}
    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        sent += what.text();
        return inner_->execute(what, parameters, until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        sent += text;
        const bool galera = claims_ == claims::to_be_galera;
        const bool facts = claims_ != claims::nothing && support::asks_for_facts(text);
        const bool cluster = galera && text.starts_with("show global status");
        if (!facts && !cluster) return inner_->query(text, until);
        sql::result answer{2};
        if (cluster) {
            answer.append_text("wsrep_cluster_state_uuid");
            answer.append_text("6f3c1e2a-0000-11f0-8d2e-0242ac120002");
            return answer;
        }
        for (const char* cell : {"version", galera ? "10.11-MariaDB" : "8.0.36", "wsrep_on",
                                 galera ? "ON" : "OFF", "wsrep_provider", "/usr/lib/galera.so"}) {
            answer.append_text(cell);
        }
        return answer;
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }
    [[nodiscard]] bool has_sent(std::string_view text) const {
        return sent.find(text) != std::string::npos;
    }

private:
    claims claims_;
    std::unique_ptr<sql::connection> inner_;
    std::string sent;
};

std::string update_of(const support::lock_database& database, const std::string& rest) {
    return "update " + database.prefix() + rest;
}

}  // namespace

// shows: fenced-transactions
TEST_CASE("a take-over between fence and commit waits for the commit and then succeeds") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const protocol_session successor{database, session_id{2}};
        const auto first = holder.acquire("job", grant_id{11});
        REQUIRE(first.what == attempt::outcome::granted);
        const auto app = application(database);
        app->query("begin", soon());
        REQUIRE(fence_job(holder, *app, first.token) == verdict::current);
        let_expire(holder);
        auto taken = std::async(std::launch::async,
                                [&] { return take_over(successor, "job", grant_id{22}); });
        REQUIRE(somebody_waits_for_a_row(database));
        app->query(update_of(database, "version set version = 1"), soon());
        CHECK(database.number("select session from rowlock_lock where name = 'job'") == 1);
        app->query("commit", soon());
        CHECK(taken.get() > first.token);
        CHECK(database.number("select session from rowlock_lock where name = 'job'") == 2);
    }
}

// shows: fenced-transactions
TEST_CASE("control: without the fence the take-over happens inside the transaction") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const protocol_session successor{database, session_id{2}};
        REQUIRE(holder.acquire("job", grant_id{11}).what == attempt::outcome::granted);
        const auto app = application(database);
        app->query("begin", soon());
        app->query("select * from " + database.prefix() + "lock", soon());
        let_expire(holder);
        CHECK(take_over(successor, "job", grant_id{22}) > 0);  // two holders until the commit
        app->query("commit", soon());
    }
}

// shows: fenced-transactions
TEST_CASE("SQLite: a take-over cannot write before the fenced transaction has ended") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite) {
        const protocol_session holder{database, session_id{1}};
        const protocol_session successor{database, session_id{2}};
        const auto first = holder.acquire("job", grant_id{11});
        REQUIRE(first.what == attempt::outcome::granted);
        const auto app = application(database);
        bool fenced = false;  // or too late, on a slow machine
        for (auto left = 300ms; !fenced && left < 60s; left *= 2) {
            holder.leases().sessions().extend(holder.db(), holder.id(), left, soon());
            app->query("begin immediate", soon());
            fenced = fence_job(holder, *app, first.token) == verdict::current;
            if (!fenced) app->query("rollback", soon());
        }
        REQUIRE(fenced);
        // As others see it: its renewal is not committed yet.
        REQUIRE(eventually([&] { return !holder.is_live(); }));
        const auto now = std::chrono::steady_clock::now();
        CHECK(kind_of([&] {
                  successor.leases().sessions().end_expired(successor.db(), session_id{1},
                                                            now + 600ms);
              }) == errc::timed_out);
        app->query("commit", soon());
        CHECK(take_over(successor, "job", grant_id{22}) > first.token);
    }
}

TEST_CASE("SQLite: a fence does not revive a session that expired without being ended") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite) {
        const protocol_session holder{database, session_id{1}};
        const auto first = holder.acquire("job", grant_id{11});
        const auto app = application(database);
        app->query("begin immediate", soon());
        REQUIRE(fence_job(holder, *app, first.token) == verdict::current);
        // Its renewed expiry passes within the transaction.
        app->query(update_of(database, "session set expires_at = 1"), soon());
        CHECK(fence_job(holder, *app, first.token) == verdict::not_current);
        app->query("rollback", soon());
    }
}

// shows: fenced-transactions
TEST_CASE("SQLite: the fence renews the session with the commit") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite) {
        const protocol_session holder{database, session_id{1}};
        const auto first = holder.acquire("job", grant_id{11});
        const auto expiry = [&] {
            return database.number("select expires_at from rowlock_session where id = 1");
        };
        const auto before = expiry();
        std::this_thread::sleep_for(5ms);  // the clock's steps are a millisecond
        const auto app = application(database);
        for (const char* end : {"rollback", "commit"}) {
            app->query("begin immediate", soon());
            REQUIRE(fence_job(holder, *app, first.token) == verdict::current);
            app->query(end, soon());
            CHECK((expiry() > before) == (std::string_view{end} == "commit"));
        }
    }
}

// shows: fenced-transactions
TEST_CASE("heartbeats pass while a transaction is fenced") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.watchful()};
        const auto lease = locks.acquire("job");
        const auto app = application(database);
        app->query("begin", soon());
        fence(*app, lease, {.max_idle = 1min});
        const auto beats = locks.stats().heartbeats;
        // Six more heartbeats: each has written to the session's row.
        REQUIRE(eventually([&] { return locks.stats().heartbeats > beats + 5; }));
        CHECK(lease.held());
        fence(*app, lease);
        app->query("commit", soon());
        CHECK(lease.held());
    }
}

// shows: fenced-transactions
TEST_CASE("control: a fence that locked the session's row would stop the heartbeats") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options({.ttl = 4s, .heartbeat = 300ms})};
        const auto lease = locks.acquire("job");
        const auto app = application(database);
        app->query("begin", soon());
        app->query("select * from " + database.prefix() + "session for update", soon());
        REQUIRE(somebody_waits_for_a_row(database));
        // Time passes for the client alone, once for both servers.
        if (database.speaks() == sql::dialect::postgresql) {
            REQUIRE(eventually([&] { return !lease.held(); }));
        }
        app->query("rollback", soon());
    }
}

// shows: fenced-transactions
TEST_CASE("a rolled-back transaction unlocks the row") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        const auto app = application(database);
        app->query(begin_of(database), soon());
        fence(*app, lease);
        app->query("rollback", soon());
        CHECK(locks.force_release("job"));
    }
}

// shows: fenced-transactions
TEST_CASE("fences of an ended session fail and do not keep the take-over waiting") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const protocol_session successor{database, session_id{2}};
        const auto first = holder.acquire("job", grant_id{11});
        holder.end();
        const auto app = application(database);
        app->query(begin_of(database), soon());
        bool refused = false;
        try {
            refused = fence_job(holder, *app, first.token) != verdict::current;
        } catch (const error&) {
            FAIL("a verdict was expected");
        }
        CHECK(refused);
        // The transaction is still open, and blocks no session.
        if (database.speaks() == sql::dialect::sqlite) app->query("rollback", soon());
        CHECK(successor.acquire("job", grant_id{22}).what == attempt::outcome::granted);
        if (app->transaction() != sql::transaction_state::none) app->query("rollback", soon());
    }
}

// shows: fenced-transactions
TEST_CASE("control: a fence that does not check the session keeps the take-over waiting") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const protocol_session successor{database, session_id{2}};
        REQUIRE(holder.acquire("job", grant_id{11}).what == attempt::outcome::granted);
        holder.end();
        const auto app = application(database);
        app->query("begin", soon());
        app->query("select * from " + database.prefix() +
                       "lock where name = 'job' and session = 1 " +
                       (database.speaks() == sql::dialect::postgresql ? "for share"
                                                                      : "lock in share mode"),
                   soon());
        auto taken =
            std::async(std::launch::async, [&] { return successor.acquire("job", grant_id{22}); });
        REQUIRE(somebody_waits_for_a_row(database));
        app->query("rollback", soon());
        CHECK(taken.get().what == attempt::outcome::granted);
    }
}

// shows: fenced-transactions
TEST_CASE("a holder that was stopped inside a fenced transaction is cut off after max_idle") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const protocol_session successor{database, session_id{2}};
        const auto first = holder.acquire("job", grant_id{11});
        const auto app = application(database);
        app->query("begin", soon());
        app->query(update_of(database, "token_floor set floor = floor + 1"), soon());
        REQUIRE(fence_job(holder, *app, first.token, 1s) == verdict::current);
        let_expire(holder);
        // The client does not end the transaction: the server does.
        CHECK(take_over(successor, "job", grant_id{22}) > first.token);
        CHECK(kind_of([&] { app->query("commit", soon()); }) != errc{});
        CHECK(database.number("select floor from rowlock_token_floor") == 0);
    }
}

// shows: fenced-transactions, newer-rows
TEST_CASE("a fence that meets a take-over in progress waits for it and fails") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        for (const char* isolation : {"read committed", "repeatable read"}) {
            CAPTURE(isolation);
            client locks{database.source(), database.options()};
            const auto lease = locks.acquire("job");
            const protocol_session successor{
                database, session_id{std::string_view{isolation}.size() > 14 ? 21 : 22}};
            const auto taker = database.connect();
            taker->query("begin", soon());
            taker->query(
                update_of(database, "lock set token = token + 1, session = 2 where name = 'job'"),
                soon());
            const auto app = application(database);
            if (!postgresql) {
                app->query(std::string{"set session transaction isolation level "} + isolation,
                           soon());
            }
            app->query("begin", soon());
            if (postgresql) {
                app->query(std::string{"set transaction isolation level "} + isolation, soon());
            }
            auto fenced = std::async(std::launch::async, [&] {
                return kind_of([&] { fence(*app, lease, {.statement_timeout = 20s}); });
            });
            REQUIRE(somebody_waits_for_a_row(database));
            taker->query("commit", soon());
            const auto kind = fenced.get();
            // PostgreSQL above READ COMMITTED reports a conflict, and so does MariaDB from 11.6 on
            // at any level. A repetition then reports the loss.
            const bool aborts = postgresql || support::isolates_snapshots(*app);
            CHECK((kind == errc::lock_lost || (aborts && kind == errc::conflict)));
            const auto touch = [&] {
                const auto other = database.connect();
                if (!postgresql) other->query("set innodb_lock_wait_timeout = 1", soon());
                return kind_of([&] {
                    other->query(update_of(database, "lock set token = token + 1"), soon());
                });
            };
            // PostgreSQL: the new holder's row is unlocked at once. InnoDB keeps a lock that it got
            // after a wait until the caller's rollback, unless it has rolled back itself.
            if (aborts) {
                CHECK(touch() == errc{});
            } else {
                CHECK(touch() == errc::timed_out);
            }
            app->query("rollback", soon());
            CHECK(touch() == errc{});
            database.run("update rowlock_lock set session = null");
        }
    }
}

// shows: fenced-transactions
TEST_CASE("a failed fence in a new transaction leaves the new holder's row unlocked") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session stale{database, session_id{1}};
        const protocol_session holder{database, session_id{2}};
        const auto first = stale.acquire("job", grant_id{11});
        stale.end();
        REQUIRE(holder.acquire("job", grant_id{22}).what == attempt::outcome::granted);
        const auto app = application(database);
        app->query("begin", soon());
        CHECK(fence_job(stale, *app, first.token) != verdict::current);
        CHECK(holder.free("job", grant_id{22}));
        app->query("rollback", soon());
    }
}

// shows: fenced-transactions
TEST_CASE("control: on InnoDB a plain locking read of a stale grant locks the new holder's row") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        const protocol_session holder{database, session_id{2}};
        REQUIRE(holder.acquire("job", grant_id{22}).what == attempt::outcome::granted);
        const auto app = application(database);
        app->query("begin", soon());
        const auto none = app->query("select * from " + database.prefix() +
                                         "lock where name = 'job' and session = 1 and token = 1 "
                                         "lock in share mode",
                                     soon());
        CHECK(none.empty());
        auto released =
            std::async(std::launch::async, [&] { return holder.free("job", grant_id{22}); });
        REQUIRE(somebody_waits_for_a_row(database));
        app->query("rollback", soon());
        CHECK(released.get());
    }
}

// shows: fenced-transactions
TEST_CASE("MariaDB: a read view from before the grant is refused; without the view it would pass") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        const auto app = application(database);
        if (support::isolates_snapshots(*app)) {  // or the control would be refused
            app->query("set session innodb_snapshot_isolation = off", soon());
        }
        app->query("set session transaction isolation level repeatable read", soon());
        app->query("begin", soon());
        const auto stale =
            app->query("select settled from " + database.prefix() + "token_floor", soon());
        database.run("update rowlock_token_floor set settled = 100");  // by the former holder
        client locks{database.source(), database.options()};
        auto lease = locks.acquire("job");
        CHECK(kind_of([&] { fence(*app, lease); }) == errc::conflict);
        CHECK(kind_of([&] { release_on_commit(*app, lease); }) == errc::conflict);
        CHECK(lease.held());
        // The control: a locking read alone finds the grant, and the next read is stale.
        CHECK(app->query("select * from " + database.prefix() +
                             "lock where name = 'job' lock in share mode",
                         soon())
                  .rows() == 1);
        CHECK(app->query("select settled from " + database.prefix() + "token_floor", soon())
                  .integer(0, 0) == stale.integer(0, 0));
        app->query("rollback", soon());
    }
}

// shows: fenced-transactions
TEST_CASE("a forced release waits for the fenced transaction; fences after it fail") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        client admin{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        const auto app = application(database);
        app->query("begin", soon());
        fence(*app, lease);
        auto forced = std::async(std::launch::async, [&] { return admin.force_release("job"); });
        REQUIRE(somebody_waits_for_a_row(database));
        CHECK(lease.held());
        app->query("commit", soon());
        CHECK(forced.get());
        app->query("begin", soon());
        CHECK(kind_of([&] { fence(*app, lease); }) == errc::lock_lost);
        app->query("rollback", soon());
        CHECK(lease.lost().stop_requested());
    }
}

// shows: fenced-transactions
TEST_CASE("a reclaim waits for the predecessor's fenced transaction") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client before{database.source(), database.options({.owner = "singleton"})};
        const auto lease = before.acquire("job");
        const auto app = application(database);
        app->query("begin", soon());
        fence(*app, lease);
        client after{database.source(), database.options({.owner = "singleton"})};
        auto reclaimed = std::async(std::launch::async, [&] { return after.reclaim().leases; });
        REQUIRE(somebody_waits_for_a_row(database));
        app->query("commit", soon());
        const auto taken = reclaimed.get();
        REQUIRE(taken.size() == 1);
        CHECK(taken[0].token() > lease.token());
        app->query("begin", soon());
        CHECK(kind_of([&] { fence(*app, lease); }) == errc::lock_lost);
        app->query("rollback", soon());
    }
}

// shows: fenced-transactions
TEST_CASE("the reaper does not free the lease of an expired session under its fence") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const protocol_session holder{database, session_id{1}};
        const auto first = holder.acquire("job", grant_id{11});
        const auto app = application(database);
        app->query("begin", soon());
        REQUIRE(fence_job(holder, *app, first.token) == verdict::current);
        let_expire(holder);
        REQUIRE(eventually([&] { return !holder.is_live(); }));
        const auto reaping = database.connect();
        auto reaped = std::async(std::launch::async, [&] {
            std::stop_source never;
            try {
                detail::reap_round(*reaping, holder.statements(), database.reaping(100s, 20s),
                                   never.get_token());
            } catch (const error& failure) {
                CHECK(failure.kind() == errc::timed_out);  // repeated with the next round
            }
        });
        std::this_thread::sleep_for(300ms);
        CHECK(database.number("select session from rowlock_lock where name = 'job'") == 1);
        app->query("commit", soon());
        reaped.get();
    }
}

TEST_CASE("a fence that finds its session ended reports the loss of all leases of the session") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        const auto other = locks.acquire("other");
        database.protocol().sessions().end(*database.connect(), lease.session_id(), soon());
        const auto app = application(database);
        app->query(begin_of(database), soon());
        CHECK(kind_of([&] { fence(*app, lease); }) == errc::lock_lost);
        app->query("rollback", soon());
        CHECK_FALSE(other.held());
        CHECK(eventually([&] { return other.lost().stop_requested(); }));
        CHECK(locks.acquire("again").held());  // in a new session
    }
}

TEST_CASE("two transactions are fenced with one lease at a time") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        const auto one = application(database);
        const auto two = application(database);
        one->query("begin", soon());
        two->query("begin", soon());
        fence(*one, lease, {.statement_timeout = 20s});
        fence(*two, lease, {.statement_timeout = 20s});
        one->query("commit", soon());
        two->query("commit", soon());
    }
}

TEST_CASE("the wait of a fence is bounded on the server") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql, support::backend::mariadb,
                             support::backend::soci_postgresql, support::backend::soci_mariadb) {
        client locks{database.source(), database.options()};
        auto lease = locks.acquire("job");
        const auto taker = application(database);
        taker->query("begin", soon());
        taker->query(update_of(database, "lock set token = token + 1"), soon());
        const auto wait = [&](bool releases) -> std::chrono::steady_clock::duration {
            const auto app = application(database);
            app->query("begin", soon());
            const auto start = std::chrono::steady_clock::now();
            const auto kind = kind_of([&] {
                if (!releases) fence(*app, lease, {.statement_timeout = 400ms});
                if (releases) release_on_commit(*app, lease, {.statement_timeout = 400ms});
            });
            const auto took = std::chrono::steady_clock::now() - start;
            if (!app->alive()) return 1h;  // the client gave up a second later
            CHECK(kind == errc::timed_out);
            app->query("rollback", soon());
            return took;
        };
        for (const bool releases : {false, true}) {
            CAPTURE(releases);
            CHECK(support::at_best(3s, [&] { return wait(releases); }) < 3s);
        }
        CHECK(lease.held());
        taker->query("rollback", soon());
    }
}

TEST_CASE(
    "a fenced transaction may release its lease although another transaction waits for the row") {
    // The shared lock of the fence is upgraded to an exclusive one although another transaction
    // waits, which InnoDB might take for a deadlock.
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        for (const bool writes : {true, false}) {
            CAPTURE(writes);
            client locks{database.source(), database.options()};
            client admin{database.source(), database.options()};
            auto lease = locks.acquire("job");
            const auto token = lease.token();
            const auto app = application(database);
            app->query("begin", soon());
            if (writes)
                app->query(update_of(database, "token_floor set floor = floor + 1"), soon());
            fence(*app, lease);
            auto forced =
                std::async(std::launch::async, [&] { return admin.force_release("job"); });
            REQUIRE(somebody_waits_for_a_row(database));
            release_on_commit(*app, lease);
            app->query("commit", soon());
            static_cast<void>(forced.get());
            const auto next = admin.try_acquire("job");
            REQUIRE(next);
            CHECK(next->token() > token);
        }
    }
}

// shows: fenced-transactions
TEST_CASE("a client that dies before the commit of its release leaves the lease with its session") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        auto lease = locks.acquire("job");
        {
            const auto app = application(database);
            app->query(begin_of(database), soon());
            release_on_commit(*app, lease);
        }  // closing the connection ends the transaction
        CHECK(eventually([&] {
            return database.number(
                       "select count(*) from rowlock_lock where session is not null "
                       "and name = 'job'") == 1;
        }));
        const auto app = application(database);
        app->query(begin_of(database), soon());
        fence(*app, lease);
        app->query("commit", soon());
        CHECK(lease.held());
    }
}

TEST_CASE("a release waits, for a limited time, for a transaction that has released the lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options({.statement_timeout = 1s})};
        auto lease = locks.acquire("job");
        const auto app = application(database);
        app->query("begin", soon());
        release_on_commit(*app, lease);
        const auto start = std::chrono::steady_clock::now();
        CHECK(kind_of([&] { lease.release(); }) != errc{});
        CHECK(std::chrono::steady_clock::now() - start < 15s);
        app->query("rollback", soon());
        // The client repeats the release in the background.
        client other{database.source(), database.options()};
        CHECK(eventually([&] { return other.try_acquire("job").has_value(); }));
    }
}

TEST_CASE("a comparison with the database does not take a release on commit for a loss") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.watchful()};
        auto lease = locks.acquire("job");
        const auto other = locks.acquire("other");
        const auto app = application(database);
        app->query(begin_of(database), soon());
        release_on_commit(*app, lease);
        app->query("commit", soon());
        REQUIRE(locks.force_release("other"));
        REQUIRE(
            eventually([&] { return other.lost().stop_requested(); }));  // the client has compared
        CHECK_FALSE(lease.lost().stop_requested());
        lease.release();
        CHECK(locks.stats().lost == 1);
        CHECK(locks.stats().released == 1);
    }
}

TEST_CASE("after a rolled-back release on commit a comparison with the database keeps the lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.watchful()};
        auto lease = locks.acquire("job");
        const auto other = locks.acquire("other");
        const auto app = application(database);
        app->query(begin_of(database), soon());
        release_on_commit(*app, lease);
        app->query("rollback", soon());
        REQUIRE(locks.force_release("other"));
        REQUIRE(eventually([&] { return other.lost().stop_requested(); }));
        app->query(begin_of(database), soon());
        fence(*app, lease);
        app->query("commit", soon());
        CHECK(lease.held());
    }
}

TEST_CASE("on a Galera node the fence is a write, under the same conditions") {
    if (support::mysql_alone()) return;  // Galera is MariaDB's
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        client locks{database.source(), database.options()};
        auto lease = locks.acquire("job");
        reticent_connection app{application(database), claims::to_be_galera};
        REQUIRE(sql::facts_of(app, soon()).member_of == sql::cluster::galera);
        CHECK(kind_of([&] { fence(app, lease); }) == errc::invalid_options);
        for (const char* isolation : {"read committed", "repeatable read"}) {
            CAPTURE(isolation);
            app.query(std::string{"set session transaction isolation level "} + isolation, soon());
            app.query("begin", soon());
            const auto before =
                database.number("select changed_at from rowlock_lock where name = 'job'");
            fence(app, lease);
            fence(app, lease);
            app.query("commit", soon());
            CHECK(app.has_sent("fence_write"));
            CHECK(database.number("select changed_at from rowlock_lock where name = 'job'") >
                  before);
        }
        app.query("begin", soon());
        app.query("select * from " + database.prefix() + "token_floor", soon());  // the view
        auto young = locks.acquire("young");
        CHECK(kind_of([&] { fence(app, young); }) == errc::conflict);
        release_on_commit(app, lease);
        app.query("commit", soon());
        auto next = locks.acquire("job");
        REQUIRE(locks.force_release("job"));
        app.query("begin", soon());
        CHECK(kind_of([&] { fence(app, next); }) == errc::lock_lost);
        app.query("rollback", soon());
    }
}

// shows: fenced-transactions
TEST_CASE("a fence that is told of it outlasts xa prepare; control: one that is not") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        client locks{database.source(), database.options()};
        client others{database.source(), {.statement_timeout = 1s, .retry = {.attempts = 1}}};
        database.run("create table rowlock_data (id integer primary key, v integer)");
        database.run("insert into rowlock_data values (1, 0)");
        semaphore pool{locks, lock_name{"pool"}};
        pool.set_capacity(1);
        const auto permit = pool.acquire();
        const std::string id = "'" + database.prefix() + "branch'";
        const auto prepared = [&](const auto& held, bool writes, bool two_phase) {
            const auto app = application(database);
            app->query("xa start " + id, soon());
            auto options = support::unhurried<fence_options>();
            options.two_phase = two_phase;
            fence(*app, held, options);
            if (writes) app->query("update " + database.prefix() + "data set v = v + 1", soon());
            app->query("xa end " + id, soon());
            app->query("xa prepare " + id, soon());
        };
        // The server may not have noticed yet that the connection is closed, or has rolled back
        // what had written nothing.
        const auto roll_back = [&] {
            CHECK(eventually([&] {
                static_cast<void>(kind_of([&] { database.run("xa rollback " + id); }));
                const auto all = database.run("xa recover");
                for (std::size_t row = 0; row < all.rows(); ++row) {
                    if (all.text(row, 3) == database.prefix() + "branch") return false;
                }
                return true;
            }));
        };
        for (const bool writes : {true, false}) {
            for (const bool two_phase : {true, false}) {
                CAPTURE(writes);
                CAPTURE(two_phase);
                const auto lease = locks.acquire("job");
                prepared(lease, writes, two_phase);
                const auto is_broken = [&] {
                    return kind_of([&] { static_cast<void>(others.force_release("job")); }) ==
                           errc{};
                };
                if (two_phase || (writes && support::mysql_alone())) {
                    CHECK_FALSE(is_broken());
                    roll_back();
                    CHECK(is_broken());
                } else {
                    CHECK(eventually(is_broken));  // before the transaction has ended
                    roll_back();
                }
            }
            prepared(permit, writes, true);
            CHECK(kind_of([&] { database.run("select 1 from rowlock_hold for update nowait"); }) !=
                  errc{});
            roll_back();
        }
        database.run("drop table rowlock_data");
    }
}

// shows: fenced-transactions
TEST_CASE("MariaDB, SERIALIZABLE: the fence holds, and heartbeats wait for its transaction") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        client locks{database.source(), database.options({.ttl = 20s, .heartbeat = 300ms})};
        const auto lease = locks.acquire("job");
        const auto app = application(database);
        app->query("set session transaction isolation level serializable", soon());
        app->query("begin", soon());
        fence(*app, lease);
        REQUIRE(somebody_waits_for_a_row(database));
        app->query("commit", soon());
        CHECK(lease.held());  // shorter than ttl - margin
    }
}

TEST_CASE("a reply to the fence that is lost leaves a dead connection and a held lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        auto lease = locks.acquire("job");
        for (const char* what : {"fence", "release_on_commit"}) {
            support::interception network;
            const auto app = network.wrap(database.source()).connect(soon());
            app->query(begin_of(database), soon());
            network.after([&](std::string_view name) {
                if (name == what) support::interception::lose_reply();
            });
            CHECK(kind_of([&] {
                      if (std::string_view{what} == "fence")
                          fence(*app, lease);
                      else
                          release_on_commit(*app, lease);
                  }) == errc::outcome_unknown);
            CHECK(lease.held());  // no commit can follow
        }
    }
}

TEST_CASE("a connection that does not report its transaction state is asked for it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        for (const auto what : {claims::nothing, claims::to_be_mysql}) {
            const bool postgresql = database.speaks() == sql::dialect::postgresql;
            if (postgresql && what != claims::nothing) continue;
            reticent_connection app{application(database), what};
            CHECK(kind_of([&] { fence(app, lease); }) == errc::invalid_options);
            app.query("begin", soon());
            fence(app, lease);
            app.query("commit", soon());
            if (what == claims::to_be_mysql) {
                CHECK(app.has_sent("MAX_EXECUTION_TIME(5000)"));
                CHECK(app.has_sent("set session wait_timeout = 30"));
                app.query("set autocommit = 0", soon());
                fence(app, lease);
                app.query("rollback", soon());
            }
            if (!postgresql) continue;
            app.query("begin", soon());
            CHECK_THROWS(app.query("select 1/0", soon()));
            CHECK(kind_of([&] { fence(app, lease); }) == errc::invalid_options);
            app.query("rollback", soon());
        }
        CHECK(lease.held());
    }
}

TEST_CASE("a fence finds the tables in the client's schema") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const std::string schema = database.prefix() + "schema";
        const auto apart = database.source().with_tables({.schema = schema});
        migrate(apart);
        {
            client locks{apart};
            const auto lease = locks.acquire("job");
            const auto app = application(database);
            app->query("set search_path = pg_catalog", soon());
            app->query("begin", soon());
            CHECK_NOTHROW(fence(*app, lease));
            const auto other = application(database);
            other->query("set lock_timeout = '100ms'", soon());
            const std::string row = schema + ".rowlock_lock where name = 'job' for update";
            CHECK(kind_of([&] { other->query("select * from " + row, soon()); }) ==
                  errc::timed_out);
            app->query("commit", soon());
            CHECK(other->query("select * from " + row, soon()).rows() == 1);
        }
        database.run("drop schema " + schema + " cascade");
    }
}

TEST_CASE("SQLite: a connection to another file is not mistaken for a lost lease") {
    testing::database ours;
    testing::database theirs;
    client locks{ours.source(), ours.options()};
    const auto lease = locks.acquire("job");
    const auto app = theirs.source().connect(soon());
    app->query("begin immediate", soon());
    CHECK(kind_of([&] { fence(*app, lease); }) == errc::invalid_options);
    app->query("rollback", soon());
    const auto right = ours.source().connect(soon());  // uses the manual clock too
    right->query("begin immediate", soon());
    fence(*right, lease);
    right->query("commit", soon());
    CHECK(lease.held());
}

TEST_CASE("a fence in a forked child is refused") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql) {
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        const auto app = application(database);
        app->query("begin", soon());
        CHECK(support::is_true_in_child(
            [&] { return kind_of([&] { fence(*app, lease); }) == errc::wrong_process; }));
        fence(*app, lease);
        app->query("commit", soon());
    }
}

TEST_CASE("a release that commits while a fence's answer is on its way stays released") {
    // The fenced transaction dies, with its server connection, before the fence's caller has the
    // answer. Only then can the other transaction release and commit.
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        client locks{database.source(), database.options()};
        for (const bool released_before : {false, true}) {
            CAPTURE(released_before);
            auto lease = locks.acquire("job");
            const auto other = application(database);
            if (released_before) {
                other->query("begin", soon());
                release_on_commit(*other, lease);
                other->query("rollback", soon());
            }
            support::interception network;
            const auto app = network.wrap(database.source()).connect(soon());
            const auto id = std::to_string(
                app->query(postgresql ? "select pg_backend_pid()" : "select connection_id()",
                           soon())
                    .integer(0, 0));
            app->query("begin", soon());
            network.after([&](std::string_view name) {
                if (name != "fence") return;
                database.run((postgresql ? "select pg_terminate_backend(" : "kill (") + id + ")");
                other->query("begin", soon());
                release_on_commit(*other, lease);
                other->query("commit", soon());
            });
            fence(*app, lease);
            CHECK_FALSE(lease.held());
            client elsewhere{database.source(), database.options()};
            CHECK(elsewhere.acquire("job").held());
        }
    }
}

TEST_CASE("a lease that a fence finds lost is no longer counted as held") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        {
            const auto lease = locks.acquire("job");
            // Another program frees the lease without a new revision of the session.
            database.run("update rowlock_lock set session = null, token = token + 1");
            const auto app = application(database);
            app->query(begin_of(database), soon());
            CHECK(kind_of([&] { fence(*app, lease); }) == errc::lock_lost);
            app->query("rollback", soon());
            CHECK(lease.lost().stop_requested());
        }
        CHECK(locks.stats().lost == 1);
        CHECK(eventually([&] { return locks.stats().held == 0; }, 8s));
    }
}

TEST_CASE("a fence that is refused does not wait for calls that wait for its transaction") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const bool sqlite = database.speaks() == sql::dialect::sqlite;
        support::interception network;
        auto options = database.options({.statement_timeout = 20s});
        options.max_connections = 1;
        client locks{network.wrap(database.source()), options};
        locks.acquire("other").release();
        const auto lease = locks.acquire("job");
        database.run(
            "update rowlock_lock set session = null, token = token + 1 where name = 'job'");

        const auto app = application(database);
        app->query(begin_of(database), soon());
        if (!sqlite) {
            app->query(
                "select token from " + database.prefix() + "lock where name = 'other' for update",
                soon());
        }
        std::atomic<bool> sent{false};
        network.before([&](std::string_view) { sent = true; });
        auto waiter = std::async(
            std::launch::async, [&] { return kind_of([&] { (void)locks.try_acquire("other"); }); });
        REQUIRE((sqlite ? eventually([&] { return sent.load(); })
                        : somebody_waits_for_a_row(database)));
        CHECK(kind_of([&] { fence(*app, lease); }) == errc::lock_lost);
        // On PostgreSQL a fence that fails aborts its transaction, which ends the wait.
        if (database.speaks() != sql::dialect::postgresql) {
            CHECK(waiter.wait_for(0s) == std::future_status::timeout);
        }
        CHECK(lease.lost().stop_requested());
        app->query("rollback", soon());
        CHECK(waiter.get() == errc{});
    }
}

TEST_CASE("a read-only transaction cannot lock a lease's row on PostgreSQL, nor release anywhere") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        auto lease = locks.acquire("job");
        const auto app = application(database);
        for (const bool releases : {false, true}) {
            CAPTURE(releases);
            app->query("start transaction read only", soon());
            std::string told;
            try {
                releases ? release_on_commit(*app, lease) : fence(*app, lease);
            } catch (const error& failure) {
                CHECK(failure.kind() == errc::read_only);
                told = failure.what();
            }
            const bool refused = releases || database.speaks() == sql::dialect::postgresql;
            CHECK(refused == (told.find("must not be read-only") != std::string::npos));
            app->query("rollback", soon());
            CHECK(lease.held());
        }
    }
}

TEST_CASE(
    "MariaDB: tables of the same names in another database are not mistaken for an old snapshot") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        client locks{database.source(), database.options()};
        auto lease = locks.acquire("job");
        const auto twin = database.prefix() + "twin";
        database.run("create database " + twin);
        for (const char* table : {"lock", "session"}) {
            database.run("create table " + twin + "." + database.prefix() + table + " like " +
                         database.prefix() + table);
        }
        const auto app = application(database);
        app->query("use " + twin, soon());
        for (const char* isolation : {"read committed", "repeatable read", "serializable"}) {
            CAPTURE(isolation);
            app->query(std::string{"set session transaction isolation level "} + isolation, soon());
            app->query("begin", soon());
            CHECK(kind_of([&] { fence(*app, lease); }) == errc::invalid_options);
            CHECK(kind_of([&] { release_on_commit(*app, lease); }) == errc::invalid_options);
            app->query("rollback", soon());
        }
        CHECK(lease.held());
        database.run("drop database " + twin);
    }
}

// shows: newer-rows
TEST_CASE("MariaDB: with snapshots that refuse newer rows a fence either fails or protects") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        const auto app = application(database);
        if (app->query("show variables like 'innodb_snapshot_isolation'", soon()).empty()) return;
        app->query("set session innodb_snapshot_isolation = on", soon());
        app->query("set session transaction isolation level repeatable read", soon());
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        app->query("begin", soon());
        app->query("select * from " + database.prefix() + "token_floor", soon());
        database.run("update rowlock_lock set changed_at = changed_at + 1");  // the same grant
        CHECK(kind_of([&] { fence(*app, lease); }) == errc::conflict);
        app->query("rollback", soon());
        CHECK(lease.held());
        app->query("begin", soon());
        fence(*app, lease);
        app->query("commit", soon());
    }
}

// shows: fenced-transactions
TEST_CASE(
    "a rollback to a savepoint before the fence undoes the fence, to a later one it does not") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        client admin{database.source(), database.options()};
        const auto lease = locks.acquire("job");
        const auto app = application(database);
        app->query("begin", soon());
        fence(*app, lease);
        app->query("savepoint later", soon());
        app->query("rollback to savepoint later", soon());
        auto forced = std::async(std::launch::async, [&] { return admin.force_release("job"); });
        REQUIRE(somebody_waits_for_a_row(database));
        app->query("commit", soon());
        CHECK(forced.get());

        const auto again = locks.acquire("job");
        app->query("begin", soon());
        app->query("savepoint earlier", soon());
        fence(*app, again);
        app->query("rollback to savepoint earlier", soon());
        CHECK(admin.force_release("job"));  // does not wait
        app->query("rollback", soon());
    }
}

// shows: promise-4
TEST_CASE("a fence of a lease that is taken anew before the fence reads its row is refused") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        auto first = locks.acquire("job");
        std::optional<lease> next;
        support::interception network;
        network.before([&](std::string_view what) {
            if (what != "fence" || next) return;
            first.release();
            next = locks.acquire("job");
        });
        const auto app = network.wrap(database.source()).connect(soon());
        app->query("begin", soon());
        CHECK(kind_of([&] { fence(*app, first); }) == errc::lock_lost);
        app->query("rollback", soon());
        REQUIRE(next);
        CHECK(next->held());
        app->query("begin", soon());
        fence(*app, *next);
        app->query("commit", soon());
    }
}

TEST_CASE("threads fence, release and read one lease at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        auto lease = locks.acquire("job");
        std::atomic<int> fences{0};
        {
            std::vector<std::jthread> all;
            for (int thread = 0; thread < 3; ++thread) {
                all.emplace_back([&, thread] {
                    const auto app = application(database);
                    for (int i = 0; i < 12; ++i) {
                        app->query(begin_of(database), soon());
                        const auto kind = kind_of([&] {
                            if (thread == 2 && i % 3 == 2) return release_on_commit(*app, lease);
                            fence(*app, lease);
                        });
                        CHECK((kind == errc{} || kind == errc::deadlock));
                        fences += kind == errc{} ? 1 : 0;
                        static_cast<void>(lease.held());
                        app->query("rollback", soon());
                    }
                });
            }
        }
        CHECK(fences > 20);
        lease.release();
        CHECK(locks.try_acquire("job"));
        CHECK(locks.stats().lost == 0);
    }
}

TEST_CASE("a fence in a row session leaves no idle limit to the next session on its connection") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto held = locks.acquire("job");
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const std::string ask =
            postgresql ? "select setting::int / 1000 from pg_settings where name = "
                         "'idle_in_transaction_session_timeout'"
            // MySQL has no limit for transactions alone.
            : support::mysql_alone() ? "select @@session.wait_timeout"
                                     : "select @@session.idle_transaction_timeout";
        const auto limit = [&](row_session& session) {
            return session.connection().query(ask, soon()).integer(0, 0);
        };
        const row_session_options options{.max_hold = 20s};
        {
            row_session fenced{database.source(), options};
            CHECK(limit(fenced) == 20);
            fence(fenced.connection(), held, {.max_idle = 10s});
            CHECK(limit(fenced) == 10);
            fenced.commit();
        }
        row_session next{database.source(), options};
        CHECK(limit(next) == 20);
    }
}
