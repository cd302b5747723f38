// A lease is extended while another client takes it, which has seen its old deadline pass. An open
// transaction has moved the deadline before that, and is committed between the judgement and the
// write of each statement that takes a lease. Each case has a control: a deadline that is moved
// without the row's token.

#include "lock/client/reap_round.hpp"
#include "lock/protocol/multi/multi_protocol.hpp"
#include "support/blocked.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/protocol_session.hpp"
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using std::chrono::microseconds;
using support::eventually;
using support::interception;
using support::lock_database;
using support::protocol_connection;
using support::somebody_waits_for_a_row;
using support::soon;

namespace {

constexpr microseconds an_hour = 1h;

std::string now_of(const lock_database& database) {
    switch (database.speaks()) {
        case sql::dialect::postgresql:
            return "clock_timestamp()";
        case sql::dialect::mysql:
            return "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";
        default:
            return "cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000";
    }
}

std::string later(const lock_database& database, microseconds by) {
    const auto count = std::to_string(by.count());
    if (database.speaks() == sql::dialect::postgresql) {
        return now_of(database) + " + " + count + " * interval '1 microsecond'";
    }
    return now_of(database) + " + " + count;
}

enum class moving : unsigned char {
    with_the_token,  ///< by the statement of the product
    alone,           ///< the control
};

/// The lease "job" of session 1 is past its deadline, and an open transaction has extended it
/// before that. Session 2 waits for it in the queue, if asked to.
class late_extension {
public:
    late_extension(lock_database& database, moving how, bool waited)
        : database_{database}, by_{database} {
        by_.open(session_id{1});
        by_.open(session_id{2});
        REQUIRE(by_.try_acquire("job", session_id{1}, grant_id{11}));
        (void)by_.acquire_and_free("a", session_id{1});
        if (waited) by_.enqueue("job", session_id{2}, grant_id{22});
        for (microseconds left = 300ms; !extend(how, left); left *= 2) REQUIRE(left < 60s);
        REQUIRE(eventually([&] {
            return database.number(
                       "select count(*) from rowlock_lock where name = 'job' and "
                       "deadline <= " +
                       now_of(database)) == 1;
        }));
    }

    void commit() {
        if (!std::exchange(committed_, true)) by_.run("commit");
    }
    [[nodiscard]] bool is_held() {
        return database_.number(
                   "select count(*) from rowlock_lock where name = 'job' and "
                   "session = 1 and grant_id = 11") == 1;
    }

private:
    /// False if it came too late, on a slow machine.
    bool extend(moving how, microseconds left) {
        database_.run("update rowlock_lock set deadline = " + later(database_, left) +
                      " where name = 'job'");
        const auto token = database_.number("select token from rowlock_lock where name = 'job'");
        by_.run("begin");
        const std::array row{sql::value{"job"}, sql::value{token}, sql::value{1}};
        by_.db().execute(by_.statements()("lock_lease"), row, soon());
        const std::array to{sql::value{"job"}, sql::value{1}, sql::value{token},
                            sql::value{token + 2}, sql::value{an_hour.count()}};
        const auto changed =
            how == moving::with_the_token
                ? by_.db().execute(by_.statements()("extend_lease"), to, soon()).affected()
                : by_.changed_by("update " + database_.prefix() +
                                 "lock set deadline = " + later(database_, an_hour) +
                                 " where name = 'job' and deadline > " + now_of(database_));
        if (changed != 1) by_.run("rollback");
        return changed == 1;
    }

    lock_database& database_;
    const protocol_connection by_;
    bool committed_ = false;
};

/// One way to take a lease whose deadline has passed.
struct way {
    std::string what;
    std::function<void(const protocol_connection&)> take;
    /// The statement that writes, or begins to, behind another that judges; empty: it is one
    /// statement, which waits for the row.
    std::string_view writes;
    bool waited = false;
    /// Whether the control is taken: not where one statement judges and writes behind other
    /// writers.
    bool control_bites = true;
};

void acquire(const protocol_connection& by) {
    (void)by.acquire("job", session_id{2}, grant_id{21});
}

void serve_the_queue(const protocol_connection& by) {
    (void)by.grant_next("job");
}

void take_several(const protocol_connection& by) {
    const auto several = protocol::make_multi_protocol(by.statements());
    const std::array names{protocol::wanted_name{"a", grant_id{23}},
                           protocol::wanted_name{"job", grant_id{24}}};
    (void)several->take(by.db(), {.names = names, .session = session_id{2}}, soon());
}

void take_a_batch(const protocol_connection& by) {
    std::array<protocol::grant_request, 2> requests{};
    std::int64_t id = 25;
    for (auto& each : requests) {
        each.name = id == 25 ? "a" : "job";
        each.session = session_id{2};
        each.grant_id = grant_id{id++};
    }
    (void)by.acquire_all(requests);
}

void make_a_round(const protocol_connection& by) {
    detail::reap_round(by.db(), by.statements(), {.retention = 1h, .grace = 10min});
}

/// The step of it that frees leases: the others write as well, and SQLite has one writer.
void reap_the_leases(const protocol_connection& by) {
    const std::vector<sql::value> which =
        by.db().speaks() == sql::dialect::postgresql
            ? std::vector{sql::value{1000}, sql::value{0}, sql::value{0}, sql::value{1000}}
            : std::vector{sql::value{""}, sql::value{}};
    by.db().execute(by.statements()("reap_leases"), which, soon());
}

/// Whether session 1 holds the lease when the other client has come between.
bool survives(lock_database& database, moving how, const way& by) {
    late_extension extended{database, how, by.waited};
    if (by.writes.empty()) {
        const protocol_connection other{database};
        auto taking = std::async(std::launch::async, [&] { by.take(other); });
        CHECK(somebody_waits_for_a_row(database));
        extended.commit();
        taking.get();
    } else {
        interception between;
        between.before([&](std::string_view name) {
            if (name.starts_with(by.writes)) extended.commit();
        });
        by.take(protocol_connection{between.wrap(database.source())});
    }
    return extended.is_held();
}

void check(support::backend which, const std::vector<way>& ways) {
    for (const auto& each : ways) {
        CAPTURE(each.what);
        for (const auto how : {moving::with_the_token, moving::alone}) {
            lock_database database{which};
            if (!database.there()) return;
            const bool held = survives(database, how, each);
            if (how == moving::with_the_token) {
                CHECK(held);
            } else {
                CHECK(held != each.control_bites);
            }
        }
    }
}

}  // namespace

// shows: promise-1
TEST_CASE(
    "a lease that is extended beside a client that saw its old deadline pass is not taken; "
    "control: a deadline that moves without the token") {
    SUBCASE("PostgreSQL") {
        check(support::backend::postgresql, {{.what = "acquire", .take = acquire, .writes = {}},
                                             {.what = "the queue is served",
                                              .take = serve_the_queue,
                                              .writes = {},
                                              .waited = true}});
    }
    SUBCASE("MariaDB and MySQL") {
        check(support::backend::mariadb,
              {{.what = "acquire", .take = acquire, .writes = "take"},
               {.what = "acquire, waiting for the row", .take = acquire, .writes = {}},
               {.what = "the queue is served",
                .take = serve_the_queue,
                .writes = "take",
                .waited = true},
               {.what = "several at once", .take = take_several, .writes = "take"},
               {.what = "a batch, behind rows that others have locked",
                .take = take_a_batch,
                .writes = "lock_all"},
               {.what = "the reaper", .take = make_a_round, .writes = "clear_sole"}});
    }
    SUBCASE("SQLite") {
        check(support::backend::sqlite,
              {{.what = "acquire", .take = acquire, .writes = "acquire", .control_bites = false},
               {.what = "the queue is served",
                .take = serve_the_queue,
                .writes = "begin",
                .waited = true},
               {.what = "several at once", .take = take_several, .writes = "begin"},
               {.what = "the reaper",
                .take = reap_the_leases,
                .writes = "reap_leases",
                .control_bites = false}});
    }
}

// shows: promise-1
TEST_CASE(
    "MariaDB: a lease that is extended beside a batch that saw its old deadline pass is not "
    "taken; control: a deadline that moves without the token") {
    lock_database probe{support::backend::mariadb};
    if (!probe.there()) return;
    if (probe.number("select version() like '%MariaDB%'") == 0) return;
    check(support::backend::mariadb,
          {{.what = "a batch", .take = take_a_batch, .writes = "take_all"}});
}

// Both statements pass over rows that are locked, so they have to stop between their snapshot and
// their lock elsewhere: at the sessions, which a view shows behind an advisory lock. The reaper
// also compares the place of the row, which every change moves.
// shows: promise-1
TEST_CASE(
    "PostgreSQL: a lease that is extended beside a statement that skips locked rows is not taken; "
    "control: a deadline that moves without the token") {
    const std::vector<way> ways{
        {.what = "several at once", .take = take_several, .writes = {}},
        {.what = "the reaper", .take = reap_the_leases, .writes = {}, .control_bites = false}};
    for (const auto& by : ways) {
        CAPTURE(by.what);
        for (const auto how : {moving::with_the_token, moving::alone}) {
            lock_database database{support::backend::postgresql};
            if (!database.there()) return;
            late_extension extended{database, how, false};
            const std::string gate = "hashtext('" + database.prefix() + "')";
            const protocol_connection other{database};
            const auto keeper = database.connect();
            keeper->query("select pg_advisory_lock(" + gate + ")", soon());
            database.run("alter table rowlock_session rename to rowlock_those_sessions");
            database.run(
                "create view rowlock_session as select * from rowlock_those_sessions "
                "where pg_advisory_xact_lock_shared(" +
                gate + ") is not null");
            auto taking = std::async(std::launch::async, [&] { by.take(other); });
            CHECK(somebody_waits_for_a_row(database));
            extended.commit();
            keeper->query("select pg_advisory_unlock(" + gate + ")", soon());
            taking.get();
            CHECK(extended.is_held() == (how == moving::with_the_token || !by.control_bites));
            database.run("drop view rowlock_session");
            database.run("alter table rowlock_those_sessions rename to rowlock_session");
        }
    }
}
