// Housekeeping: what it removes, what it must leave, and that no token ever comes again.

#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <future>
#include <map>
#include <string>
#include <thread>

using namespace rowlock;
using namespace std::chrono_literals;
using strategy::attempt;
using support::eventually;
using support::soon;

namespace {

/// Makes every row look `seconds` older.
void age(support::lock_database& database, const std::string& table, const std::string& column,
         int seconds) {
    const std::string by = std::to_string(seconds);
    database.run("update rowlock_" + table + " set " + column + " = " + column +
                 (database.speaks() == sql::dialect::postgresql ? " - interval '" + by + " seconds'"
                                                                : " - " + by + "000000"));
}

/// One round that thinks retention (1 h) and grace (10 min) have passed since everything before.
reap_report reap_an_hour_later(support::lock_database& database) {
    age(database, "lease", "changed_at", 3601);
    age(database, "token_floor", "raised_at", 601);
    return reap(database.source(), database.reaping(1h, 10min));
}

}  // namespace

TEST_CASE("a name whose row was reaped goes on with greater tokens") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        fencing_token last;
        for (int i = 0; i < 5; ++i) {
            auto lease = locks.acquire("job");
            last = lease.token();
        }
        auto untouched = locks.acquire("held");

        CHECK(reap_an_hour_later(database).leases_pending == 1);  // the floor rises first
        CHECK(database.number("select count(*) from rowlock_lease") == 2);
        const auto second = reap_an_hour_later(database);  // then it settles, and the row goes
        CHECK(second.leases_deleted == 1);
        CHECK(second.leases_pending == 0);
        CHECK(database.number("select count(*) from rowlock_lease") == 1);
        CHECK(untouched.held());

        const auto next = locks.acquire("job");
        CHECK(next.token() > last);
        // A row that was never reaped passes the floor as well.
        untouched.release();
        CHECK(locks.acquire("held").token() > last);
    }
}

TEST_CASE("control: a row that is deleted by hand, without the floor, brings old tokens back") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        locks.acquire("job").release();
        const auto last = locks.acquire("job").token();
        database.run("delete from rowlock_lease where name = 'job'");
        CHECK(locks.acquire("job").token() <= last);
    }
}

TEST_CASE("a row is not deleted before the floor has settled for the grace") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        locks.acquire("job").release();
        age(database, "lease", "changed_at", 3601);
        const auto options = database.reaping(1h, 10min);
        for (int round = 0; round < 3; ++round) {
            const auto report = reap(database.source(), options);
            CHECK(report.leases_deleted == 0);
            CHECK(report.leases_pending == 1);
        }
        CHECK(database.number("select count(*) from rowlock_lease") == 1);
    }
}

TEST_CASE("an insert that computed its token before the row was reaped cannot undercut it") {
    // The insert waits for another's uncommitted row, as it would for one being deleted. It
    // computed its token under the old floor; by the time it goes on the name has had greater
    // tokens.
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto protocol = database.protocol();
        const auto db = database.connect();
        protocol.open_session(*db, {1, "owner", "host", "program", 1, 60s}, soon());
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const std::string lease = database.prefix() + "lease";
        const auto blocker = database.connect();
        blocker->query("begin", soon());
        blocker->query("insert into " + lease + " (name, token, changed_at) values ('job', 41, " +
                           (postgresql ? "now()" : "0") + ")",
                       soon());
        auto late = std::async(std::launch::async, [&] {
            return protocol.acquire(*db, {"job", 1, 11, "", "", std::nullopt}, soon());
        });
        CHECK(late.wait_for(300ms) == std::future_status::timeout);
        blocker->query("commit", soon());
        CHECK(late.get().what == attempt::outcome::contested);
        const auto again = protocol.acquire(*db, {"job", 1, 12, "", "", std::nullopt}, soon());
        CHECK(again.token == 42);
    }
}

TEST_CASE("expired sessions are ended, their leases freed, and rows that nothing names deleted") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const auto protocol = database.protocol();
        const auto db = database.connect();
        for (int session = 1; session <= 7; ++session) {
            protocol.open_session(*db, {session, "owner", "host", "program", 1, 50ms}, soon());
            const std::string name = "job " + std::to_string(session);
            protocol.acquire(*db, {name, session, session, "", "", std::nullopt}, soon());
        }
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("held");
        REQUIRE(eventually([&] { return !protocol.state_of(*db, 7, soon()).live; }));

        auto options = database.reaping(1h, 10min);
        options.batch = 3;  // several batches
        const auto report = reap(database.source(), options);
        CHECK(report.sessions_ended == 7);
        CHECK(
            report.leases_freed ==
            database.number(
                "select count(*) from rowlock_lease where name like 'job %' and session is null"));
        CHECK(database.number("select count(*) from rowlock_lease where session is not null") == 1);
        CHECK(database.number("select count(*) from rowlock_session") == 1);
        CHECK(lease.held());
        CHECK(locks.stats().sessions == 1);
        CHECK(reap(database.source(), options) == reap_report{});
    }
}

TEST_CASE("names with tickets are left alone, tickets of dead sessions are not") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("other");
        locks.acquire("job").release();
        const std::string now = database.speaks() == sql::dialect::postgresql ? "now()" : "0";
        const auto ticket = [&](std::int64_t session, int grant) {
            database.run(
                "insert into rowlock_waiter (name, session, grant_id, enqueued_at) values "
                "('job', " +
                std::to_string(session) + ", " + std::to_string(grant) + ", " + now + ")");
        };
        ticket(lease.session_id(), 1);
        ticket(12345, 2);
        const auto first = reap_an_hour_later(database);
        CHECK(first.waiters_removed == 1);
        const auto second = reap_an_hour_later(database);
        CHECK(second.leases_deleted == 0);
        CHECK(database.number("select count(*) from rowlock_lease where name = 'job'") == 1);
    }
}

TEST_CASE("several reapers, takers and releases at once: no deadlock, no smaller token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        std::atomic<bool> stop{false};
        std::atomic<std::int64_t> deleted{0};
        std::vector<std::future<void>> reapers;
        // Short, so that rows really go while names are in use; the grace still outlives
        // statements.
        auto options = database.reaping(2s, 1100ms);
        options.batch = 5;
        for (int i = 0; i < 3; ++i) {
            reapers.push_back(std::async(std::launch::async, [&] {
                while (!stop) {
                    try {
                        deleted += reap(database.source(), options).leases_deleted;
                    } catch (const error& failure) {
                        // A busy machine does not keep such short deadlines. The next round goes
                        // on.
                        if (!failure.retryable() && failure.kind() != errc::outcome_unknown) throw;
                    }
                }
            }));
        }
        client locks{database.source(),
                     database.options({.poll_interval = 5ms, .statement_deadline = 500ms})};
        std::vector<std::future<int>> takers;
        for (int thread = 0; thread < 3; ++thread) {
            takers.push_back(std::async(std::launch::async, [&, thread] {
                int regressions = 0;
                std::map<std::string, fencing_token> last;
                const auto end = std::chrono::steady_clock::now() + 30s;
                // Rows are used, become idle, go, and come back.
                for (int round = 0;
                     round < 2 || (deleted == 0 && std::chrono::steady_clock::now() < end);
                     ++round) {
                    if (round > 0) std::this_thread::sleep_for(5s);
                    for (int i = 0; i < 30; ++i) {
                        const std::string name = std::to_string(thread) + "/" + std::to_string(i);
                        const auto lease = locks.acquire(name);
                        regressions += lease.token() <= last[name] ? 1 : 0;
                        last[name] = lease.token();
                    }
                }
                return regressions;
            }));
        }
        for (auto& taker : takers) CHECK(taker.get() == 0);
        stop = true;
        for (auto& reaper : reapers) CHECK_NOTHROW(reaper.get());
        CHECK(deleted > 0);
    }
}

TEST_CASE("a client runs a reaper of its own and reports each round") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const auto protocol = database.protocol();
        const auto db = database.connect();
        protocol.open_session(*db, {1, "owner", "host", "program", 1, 10ms}, soon());
        std::atomic<int> rounds{0};
        client locks{database.source(),
                     database.options({.on_event =
                                           [&](const event& what) {
                                               if (what.kind == event_kind::reaped) ++rounds;
                                           },
                                       .reaper = reaper_options{.interval = 20ms}})};
        const auto lease = locks.acquire("job");
        CHECK(eventually([&] { return rounds >= 3; }));
        CHECK(eventually(
            [&] { return database.number("select count(*) from rowlock_session") == 1; }));
        CHECK(lease.held());
    }
}

TEST_CASE("reaper options out of range are refused") {
    support::lock_database database{support::backend::sqlite};
    const auto refused = [&](reaper_options options) {
        options.prefix = database.prefix();
        try {
            reap(database.source(), options);
        } catch (const error& failure) {
            return failure.kind() == errc::invalid_options;
        }
        return false;
    };
    CHECK(refused({.interval = 0ms}));
    CHECK(refused({.retention = 49s}));  // less than ten statement deadlines
    CHECK(refused({.grace = 9s}));
    CHECK(refused({.batch = 0}));
    CHECK(refused({.statement_deadline = 0ms}));
    CHECK(refused({.statement_deadline = 2min}));
}
