// The reaper: what it removes, what it must keep, and that no token repeats.

#include "lock/client/reap_round.hpp"
#include "support/at_end.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
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
using support::eventually;
using support::kind_of;
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

/// Runs a round for which retention (1 h) and grace (10 min) have passed since all earlier changes.
reap_report reap_an_hour_later(support::lock_database& database) {
    age(database, "lock", "changed_at", 3601);
    age(database, "token_floor", "raised_at", 601);
    return reap(database.source(), database.reaping(1h, 10min));
}

/// Adds rows that were released two hours ago, and a settled floor above their tokens, so that the
/// next round deletes them. `name` makes a name from a number.
template <typename Name>
void add_reapable(support::lock_database& database, int rows, Name name) {
    const std::string then = database.speaks() == sql::dialect::postgresql
                                 ? "clock_timestamp() - interval '2 hours'"
                                 : "0";
    std::string values;
    for (int i = 0; i < rows; ++i) {
        values += (i == 0 ? "('" : ", ('") + std::string{name(i)} + "', " + std::to_string(i + 1) +
                  ", " + then + ")";
    }
    database.run("insert into rowlock_lock (name, token, changed_at) values " + values);
    database.run("update rowlock_token_floor set floor = 1000, settled = 1000");
}

std::string numbered(int i) {
    return "job " + std::to_string(1000 + i);
}

std::int64_t rows_of(support::lock_database& database) {
    return database.number("select count(*) from rowlock_lock");
}

/// PostgreSQL's statement that deletes rows, on the test's own connection and in its transaction.
class deletion {
public:
    explicit deletion(support::lock_database& database)
        : db_{database.connect()}, statement_{database.statements()("delete_leases")} {}

    /// Replaces a part of the statement's text.
    void replace(const std::string& part, const std::string& by) {
        auto text = statement_.text();
        const auto at = text.find(part);
        REQUIRE(at != std::string::npos);
        statement_ = sql::statement{text.replace(at, part.size(), by)};
    }
    /// Deletes the rows that may be deleted, at most `batch`.
    std::int64_t run(std::int64_t batch = 1000) {
        constexpr std::int64_t an_hour = 3'600'000'000;
        const std::array<sql::value, 5> all{sql::value{batch}, sql::value{an_hour}, sql::value{0},
                                            sql::value{0}, sql::value{1000}};
        return db_->execute(statement_, all, soon()).integer(0, 0);
    }
    void query(const std::string& text) { db_->query(text, soon()); }
    [[nodiscard]] sql::connection& db() { return *db_; }

private:
    std::unique_ptr<sql::connection> db_;
    sql::statement statement_;
};

/// Acquires "late" between a deletion's snapshot and its locking of the rows. Returns whether the
/// row still exists.
bool survives(support::lock_database& database, deletion& reaper) {
    // The deletion stops at the first row that it reads while the advisory lock is held.
    reaper.replace(
        "where l.ctid >",
        "where (select pg_advisory_xact_lock_shared(20261121)) is not null and l.ctid >");
    add_reapable(database, 3, numbered);
    database.run("update rowlock_lock set name = 'late' where name = 'job 1001'");
    client locks{database.source(), database.options()};

    database.run("select pg_advisory_lock(20261121)");
    auto deleted = std::async(std::launch::async, [&] { return reaper.run(); });
    REQUIRE(eventually([&] {
        return database.number(
                   "select count(*) from pg_locks where locktype = 'advisory' "
                   "and objid = 20261121 and not granted") == 1;
    }));
    const auto lease = locks.acquire("late");
    CHECK(lease.token().value() > 1000);
    database.run("select pg_advisory_unlock(20261121)");
    CHECK(deleted.get() >= 2);
    return database.number("select count(*) from rowlock_lock where name = 'late'") == 1;
}

}  // namespace

// shows: promise-2
TEST_CASE("a name whose row was reaped gets greater tokens") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        fencing_token last;
        for (int i = 0; i < 5; ++i) {
            auto lease = locks.acquire("job");
            last = lease.token();
        }
        auto untouched = locks.acquire("held");

        CHECK(reap_an_hour_later(database).leases_pending == 1);  // the floor rises first
        CHECK(database.number("select count(*) from rowlock_lock") == 2);
        const auto second =
            reap_an_hour_later(database);  // then it settles, and the row is deleted
        CHECK(second.leases_deleted == 1);
        CHECK(second.leases_pending == 0);
        CHECK(database.number("select count(*) from rowlock_lock") == 1);
        CHECK(untouched.held());

        const auto next = locks.acquire("job");
        CHECK(next.token() > last);
        // A row that was never reaped gets tokens above the floor as well.
        untouched.release();
        CHECK(locks.acquire("held").token() > last);
    }
}

// shows: promise-2
TEST_CASE("control: old tokens repeat after a row is deleted by hand without the floor") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        locks.acquire("job").release();
        const auto last = locks.acquire("job").token();
        database.run("delete from rowlock_lock where name = 'job'");
        CHECK(locks.acquire("job").token() <= last);
    }
}

// shows: promise-10
TEST_CASE("a row is not deleted before the floor has settled for the grace") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        locks.acquire("job").release();
        age(database, "lock", "changed_at", 3601);
        const auto options = database.reaping(1h, 10min);
        for (int round = 0; round < 3; ++round) {
            const auto report = reap(database.source(), options);
            CHECK(report.leases_deleted == 0);
            CHECK(report.leases_pending == 1);
        }
        CHECK(database.number("select count(*) from rowlock_lock") == 1);
    }
}

// shows: promise-2
TEST_CASE(
    "an insert that computed its token before the row was reaped never gets a smaller token") {
    // The insert waits for another's uncommitted row, as it would for one that is being deleted. It
    // computed its token with the old floor. When it goes on, the name has had greater tokens.
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        protocol.sessions().open(*db, {session_id{1}, "owner", "host", "program", 1, 60s}, soon());
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const std::string lease = database.prefix() + "lock";
        const auto blocker = database.connect();
        blocker->query("begin", soon());
        blocker->query("insert into " + lease + " (name, token, changed_at) values ('job', 41, " +
                           (postgresql ? "now()" : "0") + ")",
                       soon());
        auto late = std::async(std::launch::async, [&] {
            return protocol.acquire(*db, {"job", session_id{1}, grant_id{11}, "", "", std::nullopt},
                                    soon());
        });
        REQUIRE(support::somebody_waits_for_a_row(database));
        blocker->query("commit", soon());
        CHECK(late.get().what == attempt::outcome::contested);
        const auto again = protocol.acquire(
            *db, {"job", session_id{1}, grant_id{12}, "", "", std::nullopt}, soon());
        CHECK(again.token == 42);
    }
}

TEST_CASE("MariaDB: a new lease has its row's token, though the floor rose behind the probe") {
    support::lock_database database{support::backend::mariadb};
    if (!database.there()) return;
    support::interception network;
    client locks{network.wrap(database.source()), database.options()};
    std::atomic<bool> rose{false};
    network.before([&](std::string_view what) {
        if (what != "insert_lease" || rose.exchange(true)) return;
        database.run("update rowlock_token_floor set floor = floor + 1000");
    });
    const auto lease = locks.acquire("job");
    CHECK(rose);
    CHECK(lease.token().value() > 1000);
    CHECK(database.number("select token from rowlock_lock where name = 'job'") ==
          lease.token().value());
}

TEST_CASE("expired sessions are ended, their leases freed, and unreferenced rows deleted") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        for (int session = 1; session <= 7; ++session) {
            protocol.sessions().open(
                *db, {session_id{session}, "owner", "host", "program", 1, 50ms}, soon());
            const std::string name = "job " + std::to_string(session);
            protocol.acquire(
                *db, {name, session_id{session}, grant_id{session}, "", "", std::nullopt}, soon());
        }
        client locks{database.source(), database.options()};
        const auto lease = locks.acquire("held");
        REQUIRE(eventually(
            [&] { return !protocol.sessions().state_of(*db, session_id{7}, soon()).live; }));

        auto options = database.reaping(1h, 10min);
        options.batch = 3;  // several batches
        const auto report = reap(database.source(), options);
        CHECK(report.sessions_ended == 7);
        CHECK(report.leases_freed ==
              database.number(
                  "select count(*) from rowlock_lock where name like 'job %' and session is null"));
        CHECK(database.number("select count(*) from rowlock_lock where session is not null") == 1);
        CHECK(database.number("select count(*) from rowlock_session") == 1);
        CHECK(lease.held());
        CHECK(locks.stats().sessions == 1);
        CHECK(reap(database.source(), options) == reap_report{});
    }
}

TEST_CASE("an ended session is kept while a lease names it, as one whose row was locked") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const support::protocol_connection hand{database};
        for (const std::int64_t session : {1, 2, 3}) hand.open(session_id{session});
        REQUIRE(hand.try_acquire("job", session_id{3}, grant_id{10}));
        for (const std::int64_t session : {1, 2}) hand.end(session_id{session});
        support::interception network;
        bool named = false;
        // A round that frees the leases of ended sessions does not wait for locked rows.
        network.before([&](std::string_view what) {
            if (what != "ended_holders" || std::exchange(named, true)) return;
            database.run("update rowlock_lock set session = 1");
        });
        reap(network.wrap(database.source()), database.reaping(1h, 10min));
        network.before({});
        REQUIRE(named);
        CHECK(database.number("select count(*) from rowlock_session where id = 1") == 1);
        CHECK(database.number("select count(*) from rowlock_session where id = 2") == 0);
        CHECK(database.number("select count(*) from rowlock_session where id = 3") == 1);
        reap(database.source(), database.reaping(1h, 10min));
        CHECK(database.number("select count(*) from rowlock_session") == 1);
        CHECK(database.number("select count(*) from rowlock_lock where session is null") == 1);
    }
}

// shows: promise-10
TEST_CASE("rows of names with tickets are kept, and tickets of dead sessions are deleted") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client other{database.source(), database.options()};
        const auto lease = other.acquire("other");
        // Another client, since one that has released compares its rows when its heartbeat
        // connects, and would cancel the ticket.
        client{database.source(), database.options()}.acquire("job").release();
        const std::string now = database.speaks() == sql::dialect::postgresql ? "now()" : "0";
        const auto ticket = [&](session_id session, int grant) {
            database.run(
                "insert into rowlock_ticket (name, session, grant_id, enqueued_at) values "
                "('job', " +
                to_string(session) + ", " + std::to_string(grant) + ", " + now + ")");
        };
        ticket(lease.session_id(), 1);
        ticket(session_id{12345}, 2);
        const auto first = reap_an_hour_later(database);
        CHECK(first.waiters_removed == 1);
        const auto second = reap_an_hour_later(database);
        CHECK(second.leases_deleted == 0);
        CHECK(database.number("select count(*) from rowlock_lock where name = 'job'") == 1);
    }
}

// shows: promise-10
TEST_CASE("several reapers, takers and releases at once: no deadlock, no smaller token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        std::atomic<bool> stop{false};
        std::atomic<std::int64_t> deleted{0};
        std::vector<std::future<void>> reapers;
        auto options = database.reaping(1h, 10min);
        options.batch = 5;
        for (int i = 0; i < 3; ++i) {
            reapers.push_back(std::async(std::launch::async, [&] {
                while (!stop) {
                    try {
                        deleted += reap(database.source(), options).leases_deleted;
                    } catch (const error& failure) {
                        // The next round goes on.
                        if (!failure.retryable() && failure.kind() != errc::outcome_unknown) throw;
                    }
                }
            }));
        }
        const support::at_end halt{[&] { stop = true; }};
        client locks{database.source(),
                     database.options({.poll_interval = 5ms,
                                       .statement_timeout = 500ms,
                                       .retry = {.attempts = 100, .total = 1min}})};
        std::array<std::map<std::string, fencing_token>, 3> last;
        const auto take = [&](std::size_t thread) {
            int regressions = 0;
            for (int i = 0; i < 30; ++i) {
                const std::string name = std::to_string(thread) + "/" + std::to_string(i);
                const auto lease = locks.acquire(name);
                regressions += lease.token() <= last[thread][name] ? 1 : 0;
                last[thread][name] = lease.token();
            }
            return regressions;
        };
        const auto all_take = [&] {
            std::vector<std::future<int>> takers;
            for (std::size_t thread = 0; thread < last.size(); ++thread) {
                takers.push_back(std::async(std::launch::async, take, thread));
            }
            for (auto& taker : takers) CHECK(taker.get() == 0);
        };
        // Rows are used, become idle, are deleted while names are in use, and are inserted again.
        all_take();
        bool idle = false;
        const auto grow_old = [&] {  // with no statement of a taker on its way
            try {
                if (!idle) age(database, "lock", "changed_at", 3601);
                idle = true;
                age(database, "token_floor", "raised_at", 601);
            } catch (const error& failure) {  // of a deadlock with a reaper
                if (!failure.retryable()) throw;
            }
            return deleted > 0;
        };
        CHECK(eventually(grow_old, 60s));
        all_take();
        stop = true;
        for (auto& reaper : reapers) CHECK_NOTHROW(reaper.get());
        CHECK(deleted > 0);
    }
}

// --- concurrent use of the rows

// shows: promise-10
TEST_CASE("a lease that is acquired between the reaper's read and its deletion is kept") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    deletion reaper{database};
    CHECK(survives(database, reaper));
    CHECK(rows_of(database) == 1);
}

// shows: promise-10
TEST_CASE("control: without a check of the locked row the reaper deletes a held lease") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    deletion reaper{database};
    reaper.replace("for update of l skip locked", "");
    reaper.replace("select l.ctid as place", "select l.ctid as place, l.name");
    reaper.replace("l.ctid = any (array(select k.place from k))",
                   "l.name in (select k.name from k)");
    CHECK_FALSE(survives(database, reaper));
}

// shows: promise-10
TEST_CASE("MariaDB: a lease that is acquired between the reaper's read and its deletion is kept") {
    support::lock_database database{support::backend::mariadb};
    if (!database.there()) return;
    add_reapable(database, 3, numbered);
    client locks{database.source(), database.options()};
    std::optional<lease> late;
    support::interception between;
    between.after([&](std::string_view name) {
        if (name == "deletable_leases" && !late) late = locks.acquire("job 1001");
    });
    const auto report = reap(between.wrap(database.source()), database.reaping(1h, 10min));
    REQUIRE(late);
    CHECK(report.leases_deleted == 2);
    CHECK(late->held());
    CHECK(database.number("select count(*) from rowlock_lock where name = 'job 1001'") == 1);
    // Control: a deletion by name alone would have deleted it.
    CHECK(database.run("delete from rowlock_lock where name = 'job 1001'").affected() == 1);
}

// shows: promise-10
TEST_CASE(
    "an acquire of a row that is being deleted waits for the commit and gets a greater token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto reaper = database.connect();
        const auto remove = [&] {
            if (database.speaks() == sql::dialect::mysql) {
                reaper->query("delete from " + database.prefix() + "lock", soon());
                return;
            }
            constexpr std::int64_t an_hour = 3'600'000'000;
            const std::array<sql::value, 5> all{sql::value{1000}, sql::value{an_hour},
                                                sql::value{0}, sql::value{0}, sql::value{1000}};
            CHECK(reaper->execute(database.statements()("delete_leases"), all, soon())
                      .integer(0, 0) == 3);
        };
        client locks{database.source(), database.options()};
        for (const std::string end : {"commit", "rollback"}) {
            CAPTURE(end);
            database.run("delete from rowlock_lock");
            add_reapable(database, 3, numbered);
            reaper->query("begin", soon());
            remove();
            auto taken = std::async(std::launch::async,
                                    [&] { return locks.acquire("job 1001").token().value(); });
            REQUIRE(support::somebody_waits_for_a_row(database));
            reaper->query(end, soon());
            CHECK(taken.get() > 1000);  // the floor
        }
    }
}

// shows: promise-10
TEST_CASE("two reapers at once do not wait, and each deletes what the other leaves") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    add_reapable(database, 10, numbered);
    deletion first{database};
    first.query("begin");
    CHECK(first.run(4) == 4);  // without a commit

    const auto second = reap(database.source(), database.reaping(1h, 10min));
    CHECK(second.leases_deleted == 6);
    CHECK(rows_of(database) == 4);  // while the first may still roll back
    SUBCASE("the first commits") {
        first.query("commit");
        CHECK(rows_of(database) == 0);
    }
    SUBCASE("the first dies: the next round deletes its rows") {
        first.query("rollback");
        CHECK(reap(database.source(), database.reaping(1h, 10min)).leases_deleted == 4);
        CHECK(rows_of(database) == 0);
    }
}

// shows: promise-10
TEST_CASE("control: a reaper that does not skip locked rows waits for the other") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    add_reapable(database, 10, numbered);
    deletion first{database};
    first.query("begin");
    CHECK(first.run(4) == 4);
    deletion second{database};
    second.replace(" skip locked", "");
    auto waiting = std::async(std::launch::async, [&] { return second.run(); });
    CHECK(support::somebody_waits_for_a_row(database));
    first.query("commit");
    CHECK(waiting.get() == 6);
}

// shows: promise-10
TEST_CASE(
    "a reaper that dies between two batches leaves the rest to the next, and no smaller token") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        add_reapable(database, 20, numbered);
        auto options = database.reaping(1h, 10min);
        options.batch = 5;
        support::interception dying;
        int batches = 0;
        dying.after([&](std::string_view name) {
            const bool a_batch = name == "delete_leases" || name == "delete_lease";
            if (a_batch && ++batches == 2) support::interception::lose_reply();
        });
        CHECK(kind_of([&] { reap(dying.wrap(database.source()), options); }) ==
              errc::outcome_unknown);
        CHECK(rows_of(database) >= 10);
        const auto report = reap(database.source(), options);
        CHECK(report.leases_deleted >= 10);
        CHECK(rows_of(database) == 0);
        client locks{database.source(), database.options()};
        CHECK(locks.acquire("job 1000").token().value() > 1000);
    }
}

// --- table scans

TEST_CASE("a round deletes every idle row once, among rows that are not idle") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        constexpr int all = 240;  // several pages
        // The order on disk differs from the order of names.
        add_reapable(database, all, [](int i) { return numbered(i * 77 % all); });
        // Every third row is held or was released recently, among them the last name of all.
        std::vector<lease> held;
        for (int i = 0; i < all; i += 3) {
            held.push_back(locks.acquire(numbered(i)));
            if (i % 6 == 0) held.pop_back();
        }
        auto options = database.reaping(1h, 10min);
        for (const int batch : {1, 7, 160, 500}) {
            CAPTURE(batch);
            options.batch = batch;
            const auto report = reap(database.source(), options);
            CHECK(report.leases_deleted == all * 2 / 3);
            CHECK(rows_of(database) == all / 3);
            // More rows before the end of the last round: each round starts at the first name.
            add_reapable(database, all, [](int i) { return "again " + std::to_string(i); });
            CHECK(reap(database.source(), options).leases_deleted == all);
            int next = 0;
            add_reapable(database, all * 2 / 3, [&](int) {
                if (next % 3 == 0) ++next;
                return numbered(next++);
            });
        }
        for (const auto& each : held) CHECK(each.held());
    }
}

// shows: promise-10
TEST_CASE("leases of dead sessions are freed past others whose rows stay locked") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        for (const std::int64_t session : {1, 2}) {
            protocol.sessions().open(*db, {session_id{session}, "owner", "host", "program", 1, 60s},
                                     soon());
        }
        for (int i = 0; i < 20; ++i) {
            const session_id session{i == 7 ? 1 : 2};
            protocol.acquire(*db, {numbered(i), session, grant_id{i + 1}, "", "", std::nullopt},
                             soon());
        }
        protocol.sessions().end(*db, session_id{1}, soon());
        protocol.sessions().end(*db, session_id{2}, soon());
        // A lock like a fenced transaction's.
        const auto fenced = database.source().connect(soon());
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const std::string shared = postgresql ? "for share" : "lock in share mode";
        fenced->query("begin", soon());
        fenced->query(
            "select 1 from " + database.prefix() + "lock where name = 'job 1007' " + shared,
            soon());
        auto options = database.reaping(30s, 10min);
        options.batch = 2;
        const auto first = reap(database.source(), options);
        CHECK(first.leases_freed == 19);
        // A session is kept while a lease refers to it.
        CHECK(first.sessions_deleted == 1);
        CHECK(database.number("select id from rowlock_session") == 1);
        fenced->query("rollback", soon());
        const auto second = reap(database.source(), options);
        CHECK(second.leases_freed == 1);
        CHECK(second.sessions_deleted == 1);
    }
}

TEST_CASE("PostgreSQL: a reaper goes on behind rows that it cannot free") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    const auto& protocol = database.protocol();
    const auto db = database.connect();
    protocol.sessions().open(*db, {session_id{1}, "owner", "host", "program", 1, 60s}, soon());
    for (int i = 0; i < 20; ++i) {
        protocol.acquire(*db, {numbered(i), session_id{1}, grant_id{i + 1}, "", "", std::nullopt},
                         soon());
    }
    protocol.sessions().end(*db, session_id{1}, soon());
    const auto fenced = database.source().connect(soon());
    fenced->query("begin", soon());
    fenced->query("select 1 from " + database.prefix() +
                      "lock where name in ('job 1000', 'job 1001', 'job 1007') for share",
                  soon());
    auto options = database.reaping(1h, 10min);
    options.batch = 2;  // fewer than are locked
    CHECK(reap(database.source(), options).leases_freed == 17);
    fenced->query("rollback", soon());
    CHECK(reap(database.source(), options).leases_freed == 3);
}

TEST_CASE("a round reads the table of leases a few times, however many batches it has") {
    support::lock_database database{support::backend::postgresql};
    if (!database.there()) return;
    constexpr int rows = 4000;
    const auto read = [&] {
        return database.number(
            "select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_all_tables where relid "
            "= '" +
            database.prefix() + "lock'::regclass");
    };
    // The server publishes a connection's reads soon after it closes.
    const auto read_by = [&](const std::function<void()>& work) {
        add_reapable(database, rows, [](int i) { return numbered(i); });
        database.run("update rowlock_token_floor set floor = 9999, settled = 9999");
        const auto before = read();
        work();
        REQUIRE(eventually([&] {
            return database.number(
                       "select count(*) from pg_stat_activity where pid <> "
                       "pg_backend_pid() and query like '%" +
                       database.prefix() + "%'") == 0;
        }));
        REQUIRE(eventually([&] { return read() > before; }));
        std::int64_t last = -1;
        REQUIRE(eventually([&] { return std::exchange(last, read()) == last; }));
        return last - before;
    };
    auto options = database.reaping(1h, 10min);
    options.batch = 100;
    CHECK(read_by([&] { CHECK(reap(database.source(), options).leases_deleted == rows); }) <
          15 * rows);
    // Control: batches that each start at the first name.
    CHECK(read_by([&] {
              deletion from_the_start{database};
              while (from_the_start.run(100) > 0) {
              }
          }) > 20 * rows);
}

TEST_CASE("SQLite: the file is not locked for longer than a batch of rows takes") {
    support::lock_database database{support::backend::sqlite};
    if (!database.there()) return;
    constexpr int rows = 500;
    add_reapable(database, rows, numbered);
    auto options = database.reaping(1h, 10min);
    options.batch = 50;
    support::interception counting;
    int deletions = 0;
    std::int64_t left = rows;
    counting.after([&](std::string_view name) {
        if (name != "delete_leases") return;
        ++deletions;
        const auto now = rows_of(database);
        CHECK(left - now <= 50);
        left = now;
    });
    CHECK(reap(counting.wrap(database.source()), options).leases_deleted == rows);
    CHECK(deletions <= rows / 50 + 1);
    // The last possible name, and none.
    add_reapable(database, 1, [](int) { return "\xf4\x8f\xbf\xbf\xf4\x8f\xbf\xbf"; });
    CHECK(reap(database.source(), options).leases_deleted == 1);
    CHECK(reap(database.source(), options).leases_deleted == 0);
}

TEST_CASE("a client runs its own reaper and reports each round") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        const auto& protocol = database.protocol();
        const auto db = database.connect();
        protocol.sessions().open(*db, {session_id{1}, "owner", "host", "program", 1, 10ms}, soon());
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
    if (!database.there()) return;
    const auto refused = [&](const reaper_options& options) {
        try {
            reap(database.source(), options);
        } catch (const error& failure) {
            return failure.kind() == errc::invalid_options;
        }
        return false;
    };
    CHECK(refused({.interval = 0ms}));
    CHECK(refused({.retention = 49s}));  // less than ten statement timeouts
    CHECK(refused({.grace = 9s}));
    CHECK(refused({.batch = 0}));
    CHECK(refused({.statement_timeout = 0ms}));
    CHECK(refused({.statement_timeout = 2min}));
    constexpr auto endless = std::chrono::milliseconds::max();
    CHECK(refused({.interval = endless}));
    CHECK(refused({.retention = endless}));
    CHECK(refused({.grace = endless}));
    CHECK(refused({.history_retention = endless}));
}
