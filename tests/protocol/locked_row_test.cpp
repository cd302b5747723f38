// A client's background work while the row of one lease is locked.

#include "support/at_end.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/own_server.hpp"
#include "support/processlist.hpp"
#include "support/queues.hpp"
#include "upkeep/blocking_transactions.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::interception;
using support::kind_of;
using support::soon;

namespace {

/// A transaction that locks the row of one lease, as a fenced one does.
class row_lock {
public:
    explicit row_lock(const support::lock_database& database)
        : table_{database.prefix() + "lock"}, db_{database.source().connect(soon())} {
        db_->query("begin", soon());
    }
    void lock(const std::string& name) {
        db_->query("select token from " + table_ + " where name = '" + name + "' for update",
                   soon());
    }
    row_lock(const row_lock&) = delete;
    row_lock& operator=(const row_lock&) = delete;
    ~row_lock() { db_->query("rollback", soon()); }

private:
    std::string table_;
    std::unique_ptr<sql::connection> db_;
};

/// A connection whose open transaction no limit ends.
std::unique_ptr<sql::connection> patient_connection(const support::lock_database& database) {
    auto made = database.connect();
    made->query(database.speaks() == sql::dialect::postgresql
                    ? "set idle_in_transaction_session_timeout = 0"
                    : "set @limits = 'none' /*M! , idle_transaction_timeout = 0 */",
                soon());
    return made;
}

using blocking = detail::blocking_transaction;

/// A transaction that is open on a connection of its own until end().
class open_transaction {
public:
    open_transaction(const sql::connection_source& source, const std::string& locks)
        : db_{source.connect(soon())} {
        opened_.push_back(pid());
        db_->query("begin", soon());
        db_->query(locks, soon());
    }
    [[nodiscard]] static bool is_ours(std::int64_t pid) {
        return std::ranges::find(opened_, pid) != opened_.end();
    }
    sql::connection& connection() { return *db_; }
    std::int64_t pid() {
        return db_
            ->query(db_->speaks() == sql::dialect::postgresql ? "select pg_backend_pid()"
                                                              : "select connection_id()",
                    soon())
            .integer(0, 0);
    }
    void end() { db_->query("rollback", soon()); }

private:
    inline static std::vector<std::int64_t> opened_;
    std::unique_ptr<sql::connection> db_;
};

std::string hex_of(const std::string& text) {
    constexpr const char* digits = "0123456789abcdef";
    std::string hex;
    for (const char c : text) {
        hex += digits[static_cast<unsigned char>(c) >> 4U];
        hex += digits[static_cast<unsigned char>(c) & 15U];
    }
    return hex;
}

/// What blocks `name`; on MySQL and MariaDB, of the transactions that this program has opened, and
/// of prepared ones those whose id has the prefix of this case's tables.
/// Where those cannot tell in time whose locks a statement waits for, all that have locked
/// something are named, those of other tests as well.
detail::blocking_transactions blocking_of(const sql::connection_source& source,
                                          const std::string& name) {
    auto seen = detail::read_blocking_transactions(source, name, soon());
    if (source.speaks() == sql::dialect::mysql) {
        std::erase_if(seen.found, [id = hex_of(source.tables().prefix)](const blocking& one) {
            const bool is_ours = one.of == blocking::kind::ordinary
                                     ? open_transaction::is_ours(one.pid)
                                     : one.gid.find(id) != std::string::npos;
            return !is_ours;
        });
    }
    return seen;
}

/// What blocks `name` once there is anything: a transaction that has just begun is left out.
detail::blocking_transactions blocking_soon(const sql::connection_source& source,
                                            const std::string& name) {
    detail::blocking_transactions seen;
    CHECK(eventually([&] { return !(seen = blocking_of(source, name)).found.empty(); }));
    return seen;
}

}  // namespace

// shows: fault-break-now
TEST_CASE("a lease whose row is locked does not delay the detection of another's loss") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        std::atomic<bool> locked{false};
        network.before([&](std::string_view what) {
            if (what.starts_with("release")) eventually([&] { return locked.load(); });
        });
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 60s, .heartbeat = 500ms})};
        client other{database.source(), database.options()};
        std::optional<row_lock> blocker{std::in_place, database};
        const auto b = locks.acquire("b");
        const auto over = locks.acquire("a", {.max_duration = 1s});
        blocker->lock("a");
        locked = true;
        REQUIRE(eventually([&] { return locks.stats().unresolved == 1; }));
        CHECK(other.force_release("b"));
        CHECK(eventually([&] { return !b.held(); }));
        CHECK(locks.stats().unresolved == 1);
        blocker.reset();
        CHECK(eventually([&] { return locks.stats().unresolved == 0; }));
        network.before({});
    }
}

// shows: promise-6
TEST_CASE("a lease whose row is locked does not prevent the repetition of another's lost release") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        interception network;
        std::atomic<bool> locked{false};
        network.before([&](std::string_view what) {
            if (what.starts_with("release")) eventually([&] { return locked.load(); });
        });
        client locks{network.wrap(database.source()),
                     database.options({.ttl = 60s, .heartbeat = 500ms, .retry = {.attempts = 1}})};
        client other{database.source(), database.options()};
        row_lock blocker{database};
        auto b = locks.acquire("b");
        const auto over = locks.acquire("a", {.max_duration = 1s});
        blocker.lock("a");
        locked = true;
        REQUIRE(eventually([&] { return locks.stats().unresolved == 1; }));
        const auto lost = std::make_shared<std::atomic<bool>>(false);
        const auto self =
            std::this_thread::get_id();  // not the heartbeat's release of the other lease
        network.before([lost, self](std::string_view what) {
            if (std::this_thread::get_id() == self && what.starts_with("release") &&
                !lost->exchange(true)) {
                interception::refuse_to_send();
            }
        });
        static_cast<void>(kind_of([&] { b.release(); }));
        CHECK(lost->load());
        CHECK(eventually([&] { return other.try_acquire("b").has_value(); }));
        network.before({});
    }
}

// shows: promise-9
TEST_CASE("a dead holder whose session's row is locked does not delay waiters for other leases") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client dead{database.source(), database.options({.ttl = 1h})};  // with no heartbeat here
        client other{database.source(), database.options()};
        std::atomic<bool> gate{false};
        std::atomic<bool> poll_waits{false};
        interception network;
        network.before([&](std::string_view what) {
            if (!gate || !what.starts_with("entries")) return;
            poll_waits = true;
            eventually([&] { return !gate; });
        });
        // Finds its grants by polls alone: the poll looks at the dead holder first.
        client waiter{network.wrap(database.source()),
                      database.options({.poll_interval = 50ms, .wake_ups = wakeup_mode::polling})};
        const auto a = dead.acquire("a");
        auto b = other.acquire("b");
        auto first =
            std::async(std::launch::async, [&] { return support::acquire_soon(waiter, "a"); });
        REQUIRE(support::places(database, 1));
        auto second =
            std::async(std::launch::async, [&] { return support::acquire_soon(waiter, "b"); });
        REQUIRE(support::places(database, 2));
        const auto id = to_string(a.session_id());
        const auto blocker = patient_connection(database);
        // No poll ends the session between its expiry and the lock.
        gate = true;
        REQUIRE(eventually([&] { return poll_waits.load(); }));
        database.run("update rowlock_session set expires_at = opened_at where id = " + id);
        blocker->query("begin", soon());
        blocker->query(
            "select id from " + database.prefix() + "session where id = " + id + " for update",
            soon());
        CHECK_FALSE(other.is_locked("a"));
        gate = false;
        const auto polls = waiter.stats().polls;
        REQUIRE(eventually([&] { return waiter.stats().polls > polls + 1; }));
        b.release();
        CHECK(second.wait_for(20s) == std::future_status::ready);
        CHECK(first.wait_for(0s) != std::future_status::ready);
        blocker->query("rollback", soon());
        CHECK(first.get().held());
        CHECK(second.get().held());
        network.before({});
    }
}

// shows: promise-9
TEST_CASE("a waiter that gave up and whose entry is locked does not delay waiters for others") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client other{database.source(), database.options()};
        client waiter{database.source(),
                      database.options({.poll_interval = 50ms, .wake_ups = wakeup_mode::polling})};
        const auto a = other.acquire("a");
        auto b = other.acquire("b");
        std::stop_source stop;
        auto first = std::async(std::launch::async, [&] {
            return waiter.try_acquire_for("a", support::patience, stop.get_token());
        });
        REQUIRE(support::places(database, 1));
        auto second =
            std::async(std::launch::async, [&] { return support::acquire_soon(waiter, "b"); });
        REQUIRE(support::places(database, 2));
        const auto blocker = patient_connection(database);
        blocker->query("begin", soon());
        blocker->query("select * from " + database.prefix() +
                           "ticket where ticket = (select min(w.ticket) from " + database.prefix() +
                           "ticket w) for update",
                       soon());
        stop.request_stop();
        CHECK_FALSE(first.get().has_value());
        b.release();
        CHECK(second.wait_for(20s) == std::future_status::ready);
        CHECK(database.number("select count(*) from rowlock_ticket") == 1);
        blocker->query("rollback", soon());
        CHECK(second.get().held());
        CHECK(support::places(database, 0));
    }
}

// shows: promise-9
TEST_CASE(
    "of waiters that gave up together, a locked entry does not keep the others' in the queue") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client other{database.source(), database.options()};
        interception network;
        client waiter{network.wrap(database.source()),
                      database.options({.poll_interval = 50ms, .wake_ups = wakeup_mode::polling})};
        const auto a = other.acquire("a");
        const auto b = other.acquire("b");
        const auto c = other.acquire("c");
        std::stop_source stop;
        std::vector<std::future<bool>> waiting;
        for (const char* name : {"a", "b", "c"}) {
            waiting.push_back(std::async(std::launch::async, [&, name] {
                return waiter.try_acquire_for(name, support::patience, stop.get_token())
                    .has_value();
            }));
            REQUIRE(support::places(database, static_cast<std::int64_t>(waiting.size())));
        }
        const auto blocker = patient_connection(database);
        blocker->query("begin", soon());
        blocker->query("select * from " + database.prefix() + "ticket where name = 'b' for update",
                       soon());
        // The loop finds all three at once.
        std::atomic<bool> polls{false};
        std::atomic<bool> let_go{false};
        network.before([&](std::string_view what) {
            if (!what.starts_with("entries") || polls.exchange(true)) return;
            eventually([&] { return let_go.load(); });
        });
        REQUIRE(eventually([&] { return polls.load(); }));
        stop.request_stop();
        for (auto& each : waiting) CHECK_FALSE(each.get());
        let_go = true;
        CHECK(support::places(database, 1));
        CHECK(database.number("select count(*) from rowlock_ticket where name = 'b'") == 1);
        blocker->query("rollback", soon());
        CHECK(support::places(database, 0));
        network.before({});
    }
}

// shows: promise-6
TEST_CASE("a reclaim that fails half-way keeps no lease that its caller did not get") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        for (const bool again : {true, false}) {
            CAPTURE(again);
            support::lock_database fresh{database.which()};
            client before{fresh.source(), fresh.options({.owner = "me"})};
            const auto a = before.acquire("a");
            const auto b = before.acquire("b");
            interception network;
            client after{
                network.wrap(fresh.source()),
                fresh.options({.ttl = again ? 60s : 3s, .owner = "me", .retry = {.attempts = 1}})};
            const auto asked = std::make_shared<std::atomic<int>>(0);
            const auto reclaimed = std::make_shared<std::atomic<bool>>(!again);
            network.before([asked, reclaimed](std::string_view what) {
                // It would give back what the first attempt has left.
                if (what == "heartbeat") eventually([&] { return reclaimed->load(); });
                if (what == "find_grant" && ++*asked == 2) interception::refuse_to_send();
            });
            CHECK(kind_of([&] { static_cast<void>(after.reclaim()); }) != errc{});
            if (again) {
                CHECK(after.reclaim().leases.size() == 2);
                *reclaimed = true;
                network.before({});
            } else {
                network.before({});
                client other{fresh.source(), fresh.options()};
                CHECK(eventually([&] { return other.try_acquire("a").has_value(); }));
                CHECK(eventually([&] { return other.try_acquire("b").has_value(); }));
                CHECK(after.stats().held == 0);
            }
        }
    }
}

TEST_CASE("a waiter for a predecessor's lease past its deadline is served at the reclaim") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client before{database.source(), database.options({.owner = "me"})};
        client waiter{database.source(), database.options({.poll_interval = 1min})};
        const auto job = before.acquire("job");
        auto waiting =
            std::async(std::launch::async, [&] { return support::acquire_soon(waiter, "job"); });
        REQUIRE(support::places(database, 1));
        database.run("update rowlock_lock set deadline = acquired_at where name = 'job'");
        client after{database.source(), database.options({.owner = "me"})};
        CHECK(after.reclaim().leases.empty());
        REQUIRE(waiting.wait_for(20s) == std::future_status::ready);
        CHECK(waiting.get().held());
    }
}

// shows: fault-destroyed-client
TEST_CASE("a call that is still running opens no session of a destroyed client") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        client holder{database.source(), database.options()};
        auto job = holder.acquire("job");
        SUBCASE("of a call that polls") {
            std::optional<client> barging{std::in_place, database.source(), database.options()};
            auto waiting = std::async(std::launch::async, [&] {
                return kind_of([&] {
                    static_cast<void>(
                        barging->try_acquire_for("job", 20s, {.queueing = queueing::barging}));
                });
            });
            REQUIRE(eventually([&] { return barging->stats().sessions == 1; }));
            barging.reset();
            CHECK(waiting.get() == errc::lock_lost);
        }
        SUBCASE("of a call that was about to send a statement") {
            interception network;
            std::optional<client> trying{std::in_place, network.wrap(database.source()),
                                         database.options()};
            CHECK_FALSE(trying->try_acquire("job"));
            job.release();
            std::promise<void> there;
            std::promise<void> gone;
            const auto first = std::make_shared<std::atomic<bool>>(true);
            network.before([&, first](std::string_view what) {
                const bool asks = what == "acquire" || what.starts_with("probe");
                if (!asks || !first->exchange(false)) return;
                there.set_value();
                gone.get_future().wait();
            });
            auto waiting = std::async(std::launch::async, [&] {
                return kind_of([&] { static_cast<void>(trying->try_acquire("job")); });
            });
            CHECK(there.get_future().wait_for(20s) == std::future_status::ready);
            trying.reset();
            gone.set_value();
            CHECK(waiting.get() == errc::lock_lost);
            network.before({});
        }
        CHECK(database.number("select count(*) from rowlock_lock where session not in (select id "
                              "from rowlock_session where owner = '" +
                              holder.owner() + "')") == 0);
    }
}

TEST_CASE("the transaction that has locked a lease's row is named, and how to end it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        const auto a = locks.acquire("a");
        const auto b = locks.acquire("b");
        CHECK(blocking_of(database.source(), "a").found.empty());
        const std::string row = "select 1 from " + database.prefix() + "lock where name = 'a' ";
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        open_transaction fence{database.source(),
                               row + (postgresql ? "for share" : "lock in share mode")};
        const auto pid = fence.pid();
        const auto seen = blocking_soon(database.source(), "a");
        REQUIRE(seen.found.size() == 1);
        CHECK(seen.note.empty());
        const blocking& one = seen.found.front();
        CHECK(one.of == blocking::kind::ordinary);
        CHECK(one.pid == pid);
        CHECK_FALSE(one.user.empty());
        CHECK(one.state.find("idle in") != std::string::npos);
        REQUIRE(one.age);
        CHECK(*one.age < 60s);
        CHECK(one.how_to_end.find(std::to_string(pid)) != std::string::npos);
        CHECK(blocking_of(database.source(), "b").found.empty());

        // Two at once, one of them in a subtransaction.
        open_transaction second{database.source(), "savepoint s"};
        second.connection().query(row + (postgresql ? "for share" : "lock in share mode"), soon());
        CHECK(eventually([&] { return blocking_of(database.source(), "a").found.size() == 2; }));
        second.connection().query("release savepoint s", soon());
        CHECK(blocking_of(database.source(), "a").found.size() == 2);
        fence.end();
        CHECK(blocking_soon(database.source(), "a").found.front().pid == second.pid());
        second.end();
        CHECK(blocking_of(database.source(), "a").found.empty());
    }
}

TEST_CASE("the transaction that has locked the permits or the session of a holder is named") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        client locks{database.source(), database.options()};
        semaphore pool{locks, lock_name{"pool"}};
        pool.set_capacity(3);
        const auto one = pool.acquire(1);
        for (const char* table : {"hold", "lock", "session"}) {
            CAPTURE(table);
            open_transaction blocker{database.source(),
                                     "select 1 from " + database.prefix() + table + " for update"};
            const auto seen = blocking_soon(database.source(), "pool");
            REQUIRE_FALSE(seen.found.empty());
            CHECK(seen.found.front().pid == blocker.pid());
            blocker.end();
        }
    }
}

TEST_CASE(
    "the transaction that has locked a lease's row is named once MySQL can show the others' "
    "statements") {
    if (!support::mysql_alone()) return;
    // Not the tests' server: while it cannot show its list, other tests would learn nothing either.
    const auto server = support::own_server::start(support::server::mariadb,
                                                   {.arguments = {"--performance-schema=on"}});
    if (!server) return;
    const auto source = rowlock::open(server->url());
    migrate(source);
    client locks{source};
    const auto a = locks.acquire("a");
    const std::string row = "select 1 from rowlock_lock where name = 'a' lock in share mode";
    open_transaction fence{source, row};
    open_transaction other{source, "select count(*) from rowlock_lock"};
    const auto id = other.pid();
    auto busy = std::async(std::launch::async, [&] {
        other.connection().query("select sleep(50), '\xF4\x8F\xBF\xBF'", soon());
    });
    const auto admin = source.connect(soon());
    const auto wake = [&] { admin->query("kill query " + std::to_string(id), soon()); };
    const support::at_end also_after_a_failure{wake};
    REQUIRE(eventually(
        [&] { return support::processes_in(*admin, "User sleep", "\xF4\x8F\xBF\xBF") == 1; }));
    const auto unreadable = blocking_of(source, "a");
    // A MySQL that can show the statement names it at once.
    CHECK(unreadable.found.empty() != unreadable.note.empty());
    wake();
    busy.get();
    const auto seen = blocking_soon(source, "a");
    REQUIRE(seen.found.size() == 1);
    CHECK(seen.note.empty());
    CHECK(seen.found.front().pid == fence.pid());
    CHECK_FALSE(seen.found.front().one_of_several);
}

TEST_CASE("a transaction that was prepared and forgotten is named on MariaDB and MySQL") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb) {
        client locks{database.source(), database.options()};
        const auto a = locks.acquire("a");
        const std::string id = "'" + database.prefix() + "it''s',''";
        const std::string literal = "X'" + hex_of(database.prefix() + "it's") + "','',1";
        {
            const auto db = database.source().connect(soon());
            db->query("xa start " + id, soon());
            db->query("select 1 from " + database.prefix() + "lock where name = 'a' for update",
                      soon());
            db->query("insert into " + database.prefix() +
                          "lock (name, token, changed_at) select 'x', 0, 0",
                      soon());
            db->query("xa end " + id, soon());
            db->query("xa prepare " + id, soon());
        }
        detail::blocking_transactions seen;
        CHECK(eventually([&] {
            seen = blocking_of(database.source(), "a");
            return !seen.found.empty() && seen.found.front().of == blocking::kind::prepared;
        }));
        const auto mine = std::ranges::find(seen.found, literal, &blocking::gid);
        REQUIRE(mine != seen.found.end());
        CHECK(mine->how_to_end == "xa rollback " + literal);
        const auto all = detail::read_prepared_transactions(database.source(), soon());
        CHECK(std::ranges::find(all.found, literal, &blocking::gid) != all.found.end());
        database.run(mine->how_to_end);
        CHECK(blocking_of(database.source(), "a").found.empty());
    }
}

TEST_CASE("a fenced transaction that was prepared and forgotten is named on PostgreSQL") {
    const auto server = support::own_server::start(
        support::server::postgresql, {.arguments = {"-c", "max_prepared_transactions=4"}});
    if (!server) return;
    const auto source = rowlock::open(server->url());
    migrate(source);
    client locks{source};
    const auto a = locks.acquire("a");
    const auto at = source.connect(soon());
    {
        const auto db = source.connect(soon());
        db->query("begin", soon());
        db->query("savepoint s", soon());
        db->query("select 1 from rowlock_lock where name = 'a' for share", soon());
        db->query("prepare transaction 'it''s'", soon());
        db->query("begin", soon());
        db->query("select 1 from rowlock_token_floor for update", soon());
        db->query("prepare transaction 'no fence'", soon());
    }
    const auto check = [&] {
        const auto seen = blocking_of(source, "a");
        REQUIRE(seen.found.size() == 1);
        CHECK(seen.found.front().of == blocking::kind::prepared);
        CHECK(seen.found.front().gid == "it's");
        CHECK(seen.found.front().user == "rowlock");
        CHECK(seen.found.front().age);
        CHECK(seen.found.front().how_to_end.starts_with("rollback prepared 'it''s'"));
        const auto all = detail::read_prepared_transactions(source, soon());
        REQUIRE(all.found.size() == 1);
        CHECK(all.found.front().gid == "it's");
    };
    check();
    server->stop();
    server->start_again();
    check();
}

TEST_CASE("the process that writes a SQLite file is named") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite) {
        CHECK(blocking_of(database.source(), "a").found.empty());
        const auto db = database.source().connect(soon());
        db->query("begin immediate", soon());
        const auto seen = blocking_soon(database.source(), "a");
        REQUIRE(seen.found.size() == 1);
        CHECK(seen.found.front().pid == getpid());
        db->query("rollback", soon());
        CHECK(blocking_of(database.source(), "a").found.empty());
    }
}
