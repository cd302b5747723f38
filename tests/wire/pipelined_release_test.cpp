// release_mode::pipelined: the promises of a release that the client does not wait for. A
// transaction that has locked the lease's row delays the release in the server.

#include "support/blocked.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using std::chrono::steady_clock;
using support::backend;
using support::event_log;
using support::eventually;
using support::lock_database;

namespace {

client_options pipelined(const lock_database& database, event_log* told = nullptr) {
    client_options options{.releasing = release_mode::pipelined, .statement_timeout = 20s};
    if (told != nullptr) options.on_event = told->callback();
    return database.options(std::move(options));
}

/// Releases often enough that the statement is prepared on the connection.
void warm_up(client& locks) {
    for (int i = 0; i < 2; ++i) (void)locks.acquire("warm-up");
}

/// Locks the row of `job`, so that all statements that change it wait.
class obstacle {
public:
    explicit obstacle(lock_database& database) : database_{database} {
        database_.run("begin");
        database_.run("select 1 from rowlock_lock where name = 'job' for update");
    }
    obstacle(const obstacle&) = delete;
    obstacle& operator=(const obstacle&) = delete;
    ~obstacle() {
        if (!gone_) database_.run("rollback");
    }
    void commit() {
        gone_ = true;
        database_.run("commit");
    }
    [[nodiscard]] bool stops_somebody() const { return blocked() != 0; }
    /// The server process that waits for this lock, or 0.
    [[nodiscard]] std::int64_t blocked() const {
        return database_.number(
            "select coalesce(max(pid), 0) from pg_stat_activity "
            "where pg_backend_pid() = any(pg_blocking_pids(pid))");
    }

private:
    lock_database& database_;
    bool gone_ = false;
};

/// A client that has released `job` without waiting. The server cannot free it yet.
struct stopped_release {
    explicit stopped_release(lock_database& database)
        : locks{database.source(), pipelined(database, &told)}, job{taken(locks)}, stops{database} {
        job.reset();
        REQUIRE(eventually([&] { return stops.stops_somebody(); }));
    }

    event_log told;
    client locks;
    std::optional<lease> job;
    obstacle stops;

private:
    static lease taken(client& locks) {
        warm_up(locks);
        return locks.acquire("job");
    }
};

bool is_held(lock_database& database) {
    return database.number(
               "select count(*) from rowlock_lock where name = 'job' and session is not null") > 0;
}

}  // namespace

TEST_CASE("a pipelined release has been sent when the destructor returns") {
    lock_database database{backend::postgresql};
    if (!database.there()) return;
    SUBCASE("pipelined: it returns although the server cannot free the row yet") {
        stopped_release at{database};
        CHECK(is_held(database));
        CHECK(at.locks.stats().released == 2);  // the releases of the warm-up
        at.stops.commit();
        // The client completes the release without a further call.
        CHECK(eventually([&] { return !is_held(database); }));
        CHECK(eventually([&] { return at.locks.stats().released == 3; }));
    }
    SUBCASE("control: confirmed, it waits") {
        client locks{database.source(), database.options({.statement_timeout = 20s})};
        warm_up(locks);
        std::optional<lease> job{locks.acquire("job")};
        obstacle stops{database};
        auto done = std::async(std::launch::async, [&] { job.reset(); });
        REQUIRE(eventually([&] { return stops.stops_somebody(); }));
        CHECK(done.wait_for(0s) == std::future_status::timeout);
        stops.commit();
        done.get();
        CHECK_FALSE(is_held(database));
    }
}

// shows: pipelined-releases
TEST_CASE("the client's next statements run after the release, on any connection") {
    lock_database database{backend::postgresql};
    if (!database.there()) return;
    stopped_release at{database};
    auto seen = std::async(std::launch::async, [&] { return at.locks.inspect("job"); });
    auto taken = std::async(std::launch::async, [&] { return at.locks.try_acquire("job"); });
    CHECK(seen.wait_for(300ms) == std::future_status::timeout);
    CHECK(taken.wait_for(0s) == std::future_status::timeout);
    at.stops.commit();
    CHECK(taken.get().has_value());
    (void)seen.get();
}

TEST_CASE("a thread that learns of the release from another thread finds the lock free") {
    lock_database database{backend::postgresql};
    if (!database.there()) return;
    client locks{database.source(), pipelined(database)};
    std::atomic<int> turn{0};
    std::atomic<int> missed{0};
    constexpr int turns = 400;
    const auto take_turns = [&](int first) {
        for (int i = first; i < turns; i += 2) {
            while (turn < i) std::this_thread::yield();
            if (!locks.try_acquire("job")) ++missed;  // the temporary lease is released at once
            turn = i + 1;
        }
    };
    std::jthread other{take_turns, 1};
    take_turns(0);
    other.join();
    CHECK(missed == 0);
}

// shows: pipelined-releases
TEST_CASE("a lease that was lost before its release arrived is reported as lost") {
    lock_database database{backend::postgresql};
    if (!database.there()) return;
    stopped_release at{database};
    database.run("update rowlock_lock set session = null, token = token + 1 where name = 'job'");
    at.stops.commit();
    CHECK(eventually([&] { return at.told.has(event_kind::lease_lost); }));
    CHECK(at.locks.stats().released == 2);
    CHECK(at.locks.stats().lost == 1);
}

// shows: pipelined-releases
TEST_CASE("a release whose connection breaks is reported, and repeated in the background") {
    lock_database database{backend::postgresql};
    if (!database.there()) return;
    stopped_release at{database};
    database.run("select pg_terminate_backend(" + std::to_string(at.stops.blocked()) + ")");
    CHECK(eventually([&] { return at.told.has(event_kind::outcome_unknown); }));
    at.stops.commit();
    CHECK(eventually([&] { return !is_held(database); }));
    CHECK(eventually([&] { return at.locks.stats().unresolved == 0; }));
    CHECK(at.locks.try_acquire("job").has_value());
}

TEST_CASE("a waiter that the release did not see is served, although the client is idle") {
    lock_database database{backend::postgresql};
    if (!database.there()) return;
    client_options patient = database.options();
    patient.poll_interval = 60s;  // its own polls would hide a lost wake-up
    client other{database.source(), patient};
    for (int round = 0; round < 10; ++round) {
        client locks{database.source(), pipelined(database)};
        warm_up(locks);
        std::optional<lease> job{locks.acquire("job")};
        auto waiting =
            std::async(std::launch::async, [&] { return support::acquire_soon(other, "job"); });
        REQUIRE(
            eventually([&] { return database.number("select count(*) from rowlock_ticket") > 0; }));
        const auto since = steady_clock::now();
        job.reset();
        CHECK(waiting.get().held());
        CHECK(steady_clock::now() - since < 20s);
    }
}

// shows: pipelined-releases
TEST_CASE("the destruction of the client waits for pipelined releases") {
    lock_database database{backend::postgresql};
    if (!database.there()) return;
    event_log told;
    std::optional<client> locks{std::in_place, database.source(), pipelined(database, &told)};
    warm_up(*locks);
    for (int i = 0; i < 50; ++i) {
        std::vector<lease> several;
        for (const char* name : {"a", "b", "c", "job"}) several.push_back(locks->acquire(name));
    }
    locks.reset();
    CHECK(database.number("select count(*) from rowlock_lock where session is not null") == 0);
    CHECK(database.number("select count(*) from rowlock_session") == 0);
    CHECK_FALSE(told.has(event_kind::outcome_unknown));
    CHECK_FALSE(told.has(event_kind::lease_lost));
}

TEST_CASE("where pipelining is not possible the release is waited for") {
    ROWLOCK_FOR_EACH_BACKEND(database, backend::sqlite, backend::mariadb,
                             backend::soci_postgresql) {
        client locks{database.source(), pipelined(database)};
        client other{database.source(), database.options()};
        for (int i = 0; i < 20; ++i) {
            (void)locks.acquire("job");
            CHECK(other.try_acquire("job").has_value());
        }
    }
}

TEST_CASE("a fence and release() are not pipelined") {
    lock_database database{backend::postgresql};
    if (!database.there()) return;
    client locks{database.source(), pipelined(database)};
    warm_up(locks);
    auto job = locks.acquire("job");
    obstacle stops{database};
    auto done = std::async(std::launch::async, [&] { job.release(); });
    REQUIRE(eventually([&] { return stops.stops_somebody(); }));
    CHECK(done.wait_for(0s) == std::future_status::timeout);
    stops.commit();
    done.get();
    CHECK_FALSE(is_held(database));
}
