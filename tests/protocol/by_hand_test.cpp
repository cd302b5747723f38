// Rows that an operator changes by hand, under clients that rely on them.
// shows: promise-5

#include "metrics/database_totals.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/queues.hpp"
#include "view/overview.hpp"
#include <rowlock/history.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/periodic_run.hpp>
#include <rowlock/reaper.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::soon;

namespace {

/// The losses that clients reported.
class losses {
public:
    event_callback callback() {
        return [this](const event& what) {
            if (what.kind != event_kind::lease_lost) return;
            const std::lock_guard lock{mutex_};
            reasons_[what.name] = what.reason;
        };
    }
    loss_reason of(const std::string& name) {
        (void)eventually([&] {
            const std::lock_guard lock{mutex_};
            return reasons_.contains(name);
        });
        const std::lock_guard lock{mutex_};
        return reasons_[name];
    }

private:
    std::mutex mutex_;
    std::map<std::string, loss_reason> reasons_;
};

std::string remedy_of(client& locks, const std::string& name) {
    try {
        (void)locks.try_acquire(name);
    } catch (const error& failure) {
        return failure.what();
    }
    return {};
}

}  // namespace

ROWLOCK_SIMULATED_CASE(
    "a client detects within five heartbeats that a lease's row was changed by hand", database) {
    losses told;
    auto options = database.watchful({.on_event = told.callback()});
    options.heartbeat = 1s;  // not many of them pass while the machine stalls
    client locks{database.source(), options};
    client other{database.source(), database.options()};
    std::map<std::string, lease> held;
    for (const char* name : {"deleted", "freed", "raised", "lowered", "zeroed", "untouched"}) {
        locks.acquire(name).release();
        held.emplace(name, locks.acquire(name));
    }
    database.run("delete from rowlock_lock where name = 'deleted'");
    database.run("update rowlock_lock set session = null where name = 'freed'");
    database.run("update rowlock_lock set token = token + 5 where name = 'raised'");
    database.run("update rowlock_lock set token = token - 1 where name = 'lowered'");
    database.run("update rowlock_lock set token = 0 where name = 'zeroed'");
    const auto before = locks.stats().heartbeats;

    for (const char* name : {"deleted", "freed", "raised", "lowered", "zeroed"}) {
        CAPTURE(name);
        CHECK(eventually([&] { return !held.at(name).held(); }));
        CHECK(told.of(name) == loss_reason::forced_release);
    }
    CHECK(locks.stats().heartbeats - before <= 5);
    CHECK(held.at("untouched").held());
    CHECK(locks.stats().sessions == 1);

    // Control: the session's row is unchanged, so a heartbeat alone succeeds.
    const auto session = database.number("select id from rowlock_session where ttl_us = 60000000");
    CHECK(database.protocol().sessions().heartbeat(*database.connect(), session_id{session}, 0,
                                                   soon()));

    REQUIRE(eventually([&] {
        return database.number("select floor from rowlock_token_floor") >=
               held.at("lowered").token().value();
    }));
    for (const char* name : {"deleted", "freed", "raised", "lowered", "zeroed"}) {
        CAPTURE(name);
        CHECK(support::acquire_soon(other, name).token() > held.at(name).token());
    }
    CHECK_FALSE(other.try_acquire("untouched"));

    const bool sqlite = database.speaks() == sql::dialect::sqlite;
    database.run(sqlite ? "delete from rowlock_lock" : "truncate table rowlock_lock");
    const auto till_now = locks.stats().heartbeats;
    CHECK(eventually([&] { return !held.at("untouched").held(); }));
    CHECK(locks.stats().heartbeats - till_now <= 5);
}

ROWLOCK_SIMULATED_CASE(
    "a client detects that the token of its permits, or of its mode, was lowered by hand",
    database) {
    for (const char* lowered : {"0", "token - 1"}) {
        CAPTURE(lowered);
        client locks{database.source(), database.watchful()};
        semaphore api{locks, "api"};
        shared_mutex page{locks, "page"};
        api.set_capacity(1);
        api.acquire().release();
        page.acquire(lock_mode::shared).release();
        const auto permit = api.acquire();
        const auto mode = page.acquire(lock_mode::shared);
        database.run("update rowlock_hold set token = " + std::string{lowered});
        CHECK(eventually([&] { return permit.lost().stop_requested(); }));
        CHECK(eventually([&] { return mode.lost().stop_requested(); }));
        client other{database.source(), database.options()};
        semaphore same{other, "api"};
        shared_mutex copy{other, "page"};
        const auto next = same.try_acquire_for(1, support::patience);
        REQUIRE(next);
        CHECK(next->token() > permit.token());
        const auto writer = copy.try_acquire_for(lock_mode::exclusive, support::patience);
        REQUIRE(writer);
        CHECK(writer->token() > mode.token());
    }
}

TEST_CASE("a client with many leases reads their rows three thousand a second at most") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        constexpr int leases = 900;
        support::interception network;
        std::mutex mutex;
        std::vector<std::chrono::steady_clock::time_point> began;
        std::vector<std::chrono::steady_clock::time_point> ended;
        const auto note = [&](auto& into) {
            return [&](std::string_view name) {
                if (name != "held_leases") return;
                const std::lock_guard lock{mutex};
                into.push_back(std::chrono::steady_clock::now());
            };
        };
        network.before(note(began));
        network.after(note(ended));
        client locks{network.wrap(database.source()), database.options({.heartbeat = 20ms})};
        std::vector<lease> held;
        for (int i = 0; i < leases; ++i) held.push_back(locks.acquire("job " + std::to_string(i)));
        const auto reads = [&](const auto& which) {
            const std::lock_guard lock{mutex};
            return which.size();
        };
        // One that has begun before may have been of fewer leases.
        const auto before = reads(began);
        REQUIRE(eventually([&] { return reads(ended) >= before + 3; }));
        const std::lock_guard lock{mutex};
        for (auto i = before + 1; i < before + 3; ++i) {
            CHECK(began[i] - ended[i - 1] >= leases * 333us);
        }
    }
}

ROWLOCK_SIMULATED_CASE(
    "a client detects with its next heartbeat that its session's row was deleted by hand",
    database) {
    losses told;
    auto options = database.watchful({.on_event = told.callback()});
    options.heartbeat = 3s;  // no two of them pass while the machine stalls
    client locks{database.source(), options};
    const auto job = locks.acquire("job");
    const auto before = locks.stats().heartbeats;
    database.run("delete from rowlock_session");
    CHECK(eventually([&] { return !job.held(); }));
    CHECK(told.of("job") == loss_reason::session_ended);
    CHECK(locks.stats().heartbeats - before <= 1);
    CHECK(locks.try_acquire("job").has_value());
}

ROWLOCK_SIMULATED_CASE("a waiter whose queue entry is deleted by hand enqueues again", database) {
    client holder{database.source(), database.options()};
    client waiter{database.source(), database.options({.poll_interval = 100ms})};
    auto job = holder.acquire("job");
    auto waiting =
        std::async(std::launch::async, [&] { return support::acquire_soon(waiter, "job"); });
    REQUIRE(support::places(database, 1));
    const auto ticket = database.number("select ticket from rowlock_ticket");
    database.run("delete from rowlock_ticket");
    CHECK(eventually([&] {
        return database.number("select coalesce(max(ticket), 0) from rowlock_ticket") > ticket;
    }));
    job.release();
    CHECK(waiting.get().held());
}

TEST_CASE("without the row of the token floor nothing is granted, and the error says so") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto job = locks.acquire("job");
        auto other = locks.acquire("other");
        locks.acquire("free").release();
        client waiter{database.source(), database.options()};
        auto first = locks.acquire("waited for");
        auto late = std::async(std::launch::async, [&] { return waiter.acquire("waited for"); });
        REQUIRE(eventually(
            [&] { return database.number("select count(*) from rowlock_ticket") == 1; }));
        first.release();
        auto waited = late.get();
        database.run("delete from rowlock_token_floor");
        for (const char* name : {"new", "free"}) {
            CAPTURE(name);
            CHECK(remedy_of(locks, name).find("token floor") != std::string::npos);
            CHECK(remedy_of(locks, name).find("docs/migrations.md") != std::string::npos);
            CHECK(remedy_of(waiter, name).find("token floor") != std::string::npos);
        }
        CHECK(job.held());
        // What is held can be given back, or taken away.
        CHECK_NOTHROW(other.release());
        CHECK_NOTHROW(waited.release());
        CHECK(waiter.force_release("job"));
    }
}

namespace {

struct time_column {
    const char* table;
    const char* column;
};

/// Values that no client writes, and a good one to put back.
std::vector<std::string> absurd_times(sql::dialect which) {
    switch (which) {
        case sql::dialect::postgresql:
            return {"'infinity'", "'-infinity'", "'294276-12-31'", "'4713-01-01 BC'"};
        case sql::dialect::mysql:
            return {"9223372036854775807", "-9223372036854775808"};
        case sql::dialect::sqlite:
            break;
    }
    return {"9223372036854775807", "-9223372036854775807 - 1", "'tomorrow'", "9e99", "x'00ff'"};
}

/// All that lists, counts and shows, and what other names and sessions need.
void read_everything(support::lock_database& in, client& viewer, sql::connection& db) {
    CHECK(viewer.list().size() == 3);
    CHECK(viewer.inspect("a"));
    CHECK(viewer.inspect("b"));
    CHECK(viewer.waiters("a").size() <= 1);
    CHECK(list_semaphores(viewer).size() == 1);
    CHECK(list_shared_mutexes(viewer).size() == 1);
    semaphore pool{viewer, lock_name{"pool"}};
    CHECK(pool.inspect());
    CHECK(pool.holders(10).size() <= 1);
    CHECK(pool.waiters().size() <= 1);
    CHECK_NOTHROW((void)shared_mutex(viewer, "shared").holders(10));
    CHECK_NOTHROW((void)periodic_run::inspect(viewer, lock_name{"c"}));
    const auto all = view::read(db, in.statements(), 100, soon());
    CHECK_FALSE(all.only_leases);
    CHECK_NOTHROW((void)view::read_sessions(db, in.statements(), 100, soon()));
    CHECK_NOTHROW((void)metrics::read_totals(db, in.statements(), soon()));
    CHECK_FALSE(read_history(in.source(), {}).empty());
    CHECK_NOTHROW((void)reap(in.source(), in.reaping(24h, 1h)));
    CHECK(viewer.try_acquire("another"));
    CHECK_FALSE(viewer.try_acquire("b"));
}

}  // namespace

TEST_CASE("a row with an absurd time hides no other row from a list, a count or the reaper") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record_history(database.source(), true);
        client holder{database.source(), database.options({.ttl = 300s})};
        client viewer{database.source(), database.options({.ttl = 300s})};
        const auto a = holder.acquire("a");
        const auto b = holder.acquire("b");
        { const auto another = viewer.acquire("another"); }
        semaphore pool{holder, lock_name{"pool"}};
        pool.set_capacity(1);
        const auto permit = pool.acquire(1);
        const auto mode = shared_mutex{holder, "shared"}.acquire(lock_mode::shared);
        const auto now =
            database.speaks() == sql::dialect::postgresql
                ? std::string{"clock_timestamp()"}
                : std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
        const std::string session =
            std::to_string(static_cast<std::int64_t>(viewer.inspect("a")->holder->session));
        const auto db = database.connect();
        const std::vector<time_column> columns{
            {"lock", "changed_at"},    {"lock", "acquired_at"},   {"lock", "deadline"},
            {"hold", "acquired_at"},   {"hold", "deadline"},      {"session", "opened_at"},
            {"session", "expires_at"}, {"ticket", "enqueued_at"}, {"token_floor", "reaped_at"},
            {"history", "at"},         {"history", "ends_at"}};
        for (const auto& [table, column] : columns) {
            for (const auto& value : absurd_times(database.speaks())) {
                CAPTURE(table);
                CAPTURE(column);
                CAPTURE(value);
                const std::string its = "rowlock_" + std::string{table};
                database.run(
                    "insert into rowlock_ticket (name, session, grant_id, enqueued_at) "
                    "values ('a', " +
                    session + ", 77, " + now + ")");
                database.run(
                    "insert into rowlock_ticket (name, weight, session, "
                    "grant_id, enqueued_at) values ('pool', 1, " +
                    session + ", 78, " + now + ")");
                const std::string which = std::string{table} == "lock"      ? " where name = 'a'"
                                          : std::string{table} == "hold"    ? " where name = 'pool'"
                                          : std::string{table} == "history" ? " where name = 'a'"
                                                                            : "";
                // A session that looks expired is ended by the next client that meets it.
                const bool expires = std::string{column} == "expires_at";
                if (expires) {
                    database.run(
                        "insert into rowlock_session (id, owner, host, pid, program, ttl_us, "
                        "expires_at, opened_at) values (5, 'o', 'h', 1, 'p', 1, " +
                        now + ", " + now + ")");
                }
                database.run("update " + its + " set " + column + " = " + value +
                             (expires ? " where id = 5" : which));
                read_everything(database, viewer, *db);
                database.run("update " + its + " set " + column + " = " +
                             (std::string{column} == "deadline" || std::string{column} == "ends_at"
                                  ? "null"
                                  : now) +
                             (expires ? " where id = 5" : which));
                database.run("delete from rowlock_session where id = 5");
                database.run("delete from rowlock_ticket");
                database.run("delete from rowlock_ticket");
            }
        }
    }
}

// shows: promise-1
TEST_CASE(
    "a holder whose SQLite file is put back from a backup loses its lease, and the next one has it "
    "alone") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite) {
        const std::string path = database.url().substr(database.url().find(':') + 1);
        database.run("pragma wal_checkpoint(truncate)");
        std::filesystem::copy_file(path, path + ".backup");
        losses seen;
        auto options = database.options({.ttl = 60s, .heartbeat = 200ms});
        options.on_event = seen.callback();
        client holder{database.source(), options};
        const auto lease = holder.acquire("a");
        REQUIRE(lease.held());
        // As an operator does: the log first, or it would cover what is copied.
        for (const char* end : {"-wal", "-shm"}) std::filesystem::remove(path + end);
        {
            // Overwrites in place: the inode stays.
            std::ifstream from{path + ".backup", std::ios::binary};
            std::ofstream to{path, std::ios::binary | std::ios::in | std::ios::out};
            to << from.rdbuf();
        }
        CHECK(seen.of("a") == loss_reason::server_changed);
        CHECK_FALSE(lease.held());
    }
}
