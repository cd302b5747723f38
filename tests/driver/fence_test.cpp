// The promises of a lease inside the caller's transaction, on the caller's own handle, through
// every driver that can borrow one.

#include "driver/driver_fixtures.hpp"
#include "sql/table_names.hpp"
#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/servers.hpp"
#include "support/unhurried.hpp"
#include "support/waits.hpp"
#include <rowlock/optimistic.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace contract {
namespace {

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;
using support::soon;
using support::unhurried;

std::string fresh_prefix() {
    static std::atomic<int> count{0};
    return "f" + std::to_string(getpid()) + "_" + std::to_string(++count) + "_";
}

const auto long_limit = unhurried<fence_options>();

/// Lock tables, a table of the application, and the application's handle to both.
template <driver_fixture F>
class shop {
public:
    shop() : prefix{fresh_prefix()}, handle{F::borrow()} {
        if (F::speaks == sql::dialect::sqlite) handle->run("pragma busy_timeout = 20000");
        migrate(source());
        handle->run("create table " + stock() + " (sku integer primary key, pieces integer)" +
                    (F::speaks == sql::dialect::mysql ? " engine = InnoDB" : ""));
        handle->run("insert into " + stock() + " values (1, 10)");
    }
    shop(const shop&) = delete;
    shop& operator=(const shop&) = delete;
    ~shop() {
        try {
            admin->query("drop table " + stock(), soon());
            admin.reset();
            migrate(source(), {}, 0);
        } catch (const std::exception& failure) {
            MESSAGE("tables of a test were left behind: ", failure.what());
        }
    }

    [[nodiscard]] sql::connection_source source() const {
        return F::source().with_tables({.prefix = prefix});
    }
    [[nodiscard]] std::string stock() const { return prefix + "stock"; }
    [[nodiscard]] std::int64_t pieces() const {
        return admin->query("select pieces from " + stock() + " where sku = 1", soon())
            .integer(0, 0);
    }
    void sell() const { handle->run("update " + stock() + " set pieces = pieces - 1"); }
    sql::result run(const std::string& text) const {
        return admin->query(sql::qualify(text, F::speaks, {.prefix = prefix}), soon());
    }
    /// The dialect's statement that begins a writing transaction.
    [[nodiscard]] static const char* begin() {
        return F::speaks == sql::dialect::sqlite ? "begin immediate" : "begin";
    }

    const std::string prefix;
    std::unique_ptr<sql::connection> admin = F::source().connect(soon());
    std::unique_ptr<borrowed_handle> handle;
};

/// A connection of a given dialect that answers nothing.
class mute_connection final : public sql::connection {
public:
    explicit mute_connection(sql::dialect speaks) : speaks_{speaks} {}
    [[nodiscard]] sql::dialect speaks() const noexcept override { return speaks_; }
    sql::result execute(const sql::statement&, std::span<const sql::value>,
                        sql::deadline) override {
        throw std::logic_error{"nothing should be sent here"};
    }
    sql::result query(std::string_view, sql::deadline) override {
        throw std::logic_error{"nothing should be sent here"};
    }
    [[nodiscard]] bool alive() const noexcept override { return true; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return 0; }

private:
    sql::dialect speaks_;
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("a fenced transaction commits, and the lease is still held", F,
                          fence_committed) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    const auto lease = locks.acquire("stock");
    const auto db = it.handle->ref();
    it.handle->run(it.begin());
    fence(*db, lease, long_limit);
    it.sell();
    fence(*db, lease, long_limit);  // again, with statements that are prepared by now
    it.handle->run("commit");
    CHECK(it.pieces() == 9);
    CHECK(lease.held());
    CHECK(locks.inspect("stock")->token == lease.token());

    it.handle->run(it.begin());
    const auto before = db->round_trips();
    fence(*db, lease, long_limit);
    // Connector/C++ asks the server whether a transaction is open.
    const bool asks = db->transaction() == sql::transaction_state::unknown;
    CHECK(db->round_trips() - before == (!asks ? 1 : support::mysql_alone() ? 3 : 2));
    it.handle->run("rollback");
}
TEST_CASE_TEMPLATE_APPLY(fence_committed, driver_fixtures);

// shows: fenced-transactions
TEST_CASE_TEMPLATE_DEFINE("outside a transaction a fence is refused and locks nothing", F,
                          fence_outside) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    const auto lease = locks.acquire("stock");
    const auto db = it.handle->ref();
    CHECK(kind_of([&] { fence(*db, lease); }) == errc::invalid_options);
    // No row is locked, and no transaction is open.
    CHECK(locks.force_release("stock"));
    it.sell();
    CHECK(it.pieces() == 9);
}
TEST_CASE_TEMPLATE_APPLY(fence_outside, driver_fixtures);

// shows: fenced-transactions
TEST_CASE_TEMPLATE_DEFINE(
    "a stale lease's fence fails before anything is written, and lost() fires", F, fence_stale) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    client others{it.source(), unhurried<client_options>()};
    const auto lease = locks.acquire("stock");
    REQUIRE(others.force_release("stock"));
    const auto theirs = others.acquire("stock");
    const auto db = it.handle->ref();
    it.handle->run(it.begin());
    CHECK(kind_of([&] {
              fence(*db, lease, long_limit);
              it.sell();
          }) == errc::lock_lost);
    // The new holder's row is not locked, although the transaction is still open. (On SQLite the
    // whole file is locked until the rollback.)
    if (F::speaks != sql::dialect::sqlite) CHECK(others.force_release("stock"));
    it.handle->run("rollback");
    CHECK(it.pieces() == 10);
    CHECK_FALSE(lease.held());
    CHECK(lease.lost().stop_requested());
    it.handle->run(it.begin());
    it.sell();
    it.handle->run("commit");
    CHECK(it.pieces() == 9);  // the connection is still usable
}
TEST_CASE_TEMPLATE_APPLY(fence_stale, driver_fixtures);

// shows: fenced-transactions
TEST_CASE_TEMPLATE_DEFINE("control: without the fence the stale holder's transaction commits", F,
                          fence_control) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    const auto lease = locks.acquire("stock");
    REQUIRE(locks.force_release("stock"));
    const auto theirs = locks.acquire("stock");
    it.handle->run(it.begin());
    it.sell();
    it.handle->run("commit");
    CHECK(it.pieces() == 9);
}
TEST_CASE_TEMPLATE_APPLY(fence_control, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("errors that the client knows are reported without a round trip", F,
                          fence_local) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    auto lease = locks.acquire("stock");
    auto ended = locks.acquire("other", {.max_duration = 500ms});
    const auto db = it.handle->ref();
    it.handle->run(it.begin());
    const auto before = db->round_trips();
    REQUIRE(eventually([&] { return !ended.held(); }));
    CHECK(kind_of([&] { fence(*db, ended); }) == errc::lock_lost);
    CHECK(kind_of([&] { fence(*db, rowlock::lease{}); }) == errc::not_owner);
    CHECK(kind_of([&] { fence(*db, lease, {.statement_timeout = 0ms}); }) == errc::invalid_options);
    CHECK(kind_of([&] { fence(*db, lease, {.max_idle = -1ms}); }) == errc::invalid_options);
    mute_connection elsewhere{F::speaks == sql::dialect::sqlite ? sql::dialect::postgresql
                                                                : sql::dialect::sqlite};
    CHECK(kind_of([&] { fence(elsewhere, lease); }) == errc::invalid_options);
    CHECK(db->round_trips() == before);
    it.handle->run("rollback");
    lease.release();
    CHECK(kind_of([&] { fence(*db, lease); }) == errc::not_owner);
    CHECK(kind_of([&] { release_on_commit(*db, lease); }) == errc::not_owner);
    rowlock::lease inert;
    {
        client gone{it.source(), unhurried<client_options>()};
        inert = gone.acquire("stock");
    }
    CHECK(kind_of([&] { fence(*db, inert); }) == errc::lock_lost);
    CHECK(db->round_trips() == before);
}
TEST_CASE_TEMPLATE_APPLY(fence_local, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("one transaction is fenced with several leases", F, fence_several) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    std::vector<lease> leases;
    for (int i = 0; i < 5; ++i) leases.push_back(locks.acquire("stock/" + std::to_string(i)));
    const auto db = it.handle->ref();
    it.handle->run(it.begin());
    for (const auto& each : leases) fence(*db, each, long_limit);
    it.sell();
    it.handle->run("commit");
    CHECK(it.pieces() == 9);
    for (const auto& each : leases) CHECK(each.held());
}
TEST_CASE_TEMPLATE_APPLY(fence_several, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a fence works on rowlock's own connection too", F,
                          fence_own_connection) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    const auto lease = locks.acquire("stock");
    const auto db = F::source().connect(soon());
    CHECK(kind_of([&] { fence(*db, lease); }) == errc::invalid_options);
    db->query(it.begin(), soon());
    fence(*db, lease, long_limit);
    db->query("update " + it.stock() + " set pieces = 3", soon());
    db->query("commit", soon());
    CHECK(it.pieces() == 3);
}
TEST_CASE_TEMPLATE_APPLY(fence_own_connection, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a fence takes the mutex that the calling thread has locked", F,
                          fence_mutex) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    const auto db = it.handle->ref();
    mutex plain{locks, "plain"};
    recursive_mutex nested{locks, "nested"};
    it.handle->run(it.begin());
    CHECK(kind_of([&] { fence(*db, plain); }) == errc::not_owner);
    it.handle->run("rollback");
    const std::scoped_lock both{plain, nested};
    it.handle->run(it.begin());
    fence(*db, plain, long_limit);
    fence(*db, nested, long_limit);
    std::thread{[&] { CHECK(kind_of([&] { fence(*db, plain); }) == errc::not_owner); }}.join();
    it.sell();
    it.handle->run("commit");
    CHECK(it.pieces() == 9);
}
TEST_CASE_TEMPLATE_APPLY(fence_mutex, driver_fixtures);

// shows: fenced-transactions
TEST_CASE_TEMPLATE_DEFINE(
    "a lease released in a transaction is free with its commit, and not before", F,
    fence_released_in) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    client others{it.source(), unhurried<client_options>()};
    const auto db = it.handle->ref();
    auto lease = locks.acquire("stock");
    const auto token = lease.token();

    it.handle->run(it.begin());
    release_on_commit(*db, lease, long_limit);
    CHECK_FALSE(lease.held());
    it.sell();
    it.handle->run("rollback");
    CHECK_FALSE(others.try_acquire("stock"));  // the lease is still held
    CHECK_FALSE(lease.lost().stop_requested());

    it.handle->run(it.begin());  // the next attempt
    fence(*db, lease, long_limit);
    CHECK(lease.held());
    it.sell();
    release_on_commit(*db, lease, long_limit);
    CHECK_FALSE(lease.held());
    it.handle->run("commit");
    CHECK(it.pieces() == 9);

    const auto theirs = others.try_acquire("stock");
    REQUIRE(theirs);
    CHECK(theirs->token() > token);
    it.handle->run(it.begin());
    CHECK(kind_of([&] { fence(*db, lease); }) == errc::lock_lost);
    it.handle->run("rollback");
    lease.release();  // the transaction did it: no error, and no other grant is freed
    CHECK(theirs->held());
    CHECK(others.inspect("stock")->token == theirs->token());
    CHECK_FALSE(lease.lost().stop_requested());
    CHECK(locks.stats().lost == 0);
    CHECK(locks.stats().held == 0);
}
TEST_CASE_TEMPLATE_APPLY(fence_released_in, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a lease whose release was rolled back can be released as usual", F,
                          fence_given_back) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    const auto db = it.handle->ref();
    {
        auto lease = locks.acquire("stock");
        it.handle->run(it.begin());
        release_on_commit(*db, lease, long_limit);
        it.handle->run("rollback");
    }  // the destructor frees what the transaction did not
    CHECK(locks.try_acquire("stock"));

    // A comparison with the database neither reports it as lost nor releases it.
    auto kept = locks.acquire("kept");
    it.handle->run(it.begin());
    release_on_commit(*db, kept, long_limit);
    it.handle->run("rollback");
    const auto other = locks.acquire("other");
    REQUIRE(locks.force_release("other"));  // makes the heartbeat compare
    it.run("update rowlock_session set revision = revision + 1");
    it.handle->run(it.begin());
    fence(*db, kept, long_limit);
    it.handle->run("commit");
    CHECK(kept.held());
}
TEST_CASE_TEMPLATE_APPLY(fence_given_back, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("the error on a connection that does not find the tables gives advice", F,
                          fence_foreign_tables) {
    if (!F::available()) return;
    CAPTURE(F::name);
    if constexpr (F::speaks == sql::dialect::mysql) {
        const shop<F> it;
        client locks{it.source(), unhurried<client_options>()};
        const auto lease = locks.acquire("stock");
        const auto elsewhere = F::borrow();
        elsewhere->run("use information_schema");
        const auto db = elsewhere->ref();
        elsewhere->run("begin");
        try {
            fence(*db, lease, long_limit);
            FAIL("the tables are not there");
        } catch (const error& failure) {
            INFO(failure.what());
            const bool missing =
                failure.kind() == errc::schema_outdated || failure.kind() == errc::access_denied;
            CHECK(missing);
            const bool advice =
                std::string{failure.what()}.find("connection") != std::string::npos ||
                failure.kind() == errc::access_denied;
            CHECK(advice);
        }
        elsewhere->run("rollback");
        CHECK(lease.held());
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_foreign_tables, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a fence finds the tables of its client with any search path", F,
                          fence_twin_tables) {
    if (!F::available()) return;
    CAPTURE(F::name);
    // This handle's search path finds other tables first.
    if constexpr (F::speaks == sql::dialect::postgresql) {
        const shop<F> it;
        client locks{it.source(), unhurried<client_options>()};
        const auto lease = locks.acquire("stock");
        const auto schema = it.prefix + "twin";
        const auto twin = F::borrow();
        twin->run("create schema " + schema);
        twin->run("set search_path = " + schema);
        twin->run("create table " + it.prefix + "lock (like public." + it.prefix + "lock)");
        twin->run("create table " + it.prefix + "session (like public." + it.prefix + "session)");
        const auto db = twin->ref();
        twin->run("begin");
        CHECK_NOTHROW(fence(*db, lease, long_limit));
        twin->run("commit");
        twin->run("set search_path = pg_catalog");
        twin->run("begin");
        CHECK_NOTHROW(fence(*db, lease, long_limit));
        twin->run("rollback");
        CHECK(lease.held());
        twin->run("drop schema " + schema + " cascade");
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_twin_tables, driver_fixtures);

// shows: fenced-transactions
TEST_CASE_TEMPLATE_DEFINE(
    "an aborted transaction is reported at once, and a failed fence aborts one", F, fence_aborted) {
    if (!F::available()) return;
    CAPTURE(F::name);
    if constexpr (F::speaks == sql::dialect::postgresql) {
        const shop<F> it;
        // Neither a notification nor a heartbeat tells the holder that its lease was taken: it
        // would refuse the fence without a statement, and nothing would abort the transaction.
        const client_options quiet{
            .ttl = 60s, .wake_ups = wakeup_mode::polling, .statement_timeout = 20s};
        client locks{it.source(), quiet};
        auto lease = locks.acquire("stock");
        const auto db = it.handle->ref();
        it.handle->run("begin");
        CHECK_THROWS(it.handle->run("select 1/0"));
        const auto before = db->round_trips();
        CHECK(kind_of([&] { fence(*db, lease); }) == errc::invalid_options);
        CHECK(kind_of([&] { release_on_commit(*db, lease); }) == errc::invalid_options);
        CHECK(db->round_trips() == before);
        it.handle->run("rollback");
        CHECK(lease.held());

        // A failed fence aborts the transaction, which can be rolled back to the last savepoint.
        REQUIRE(locks.force_release("stock"));
        it.handle->run("begin");
        it.sell();
        it.handle->run("savepoint before_fence");
        CHECK(kind_of([&] { fence(*db, lease); }) == errc::lock_lost);
        CHECK_THROWS(it.handle->run("select 1"));
        it.handle->run("rollback to before_fence");
        it.handle->run("commit");
        CHECK(it.pieces() == 9);
        // Without a savepoint the commit is a rollback.
        client unaware{it.source(), quiet};
        const auto again = unaware.acquire("stock");
        REQUIRE(locks.force_release("stock"));
        it.handle->run("begin");
        it.sell();
        CHECK(kind_of([&] { fence(*db, again); }) == errc::lock_lost);
        it.handle->run("commit");
        CHECK(it.pieces() == 9);
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_aborted, driver_fixtures);

// shows: fenced-transactions
TEST_CASE_TEMPLATE_DEFINE("a fence leaves the caller's settings unchanged", F, fence_settings) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), {.ttl = 30s, .statement_timeout = 20s}};
    const auto lease = locks.acquire("stock");
    const auto run = [&](const std::string& text) { return it.handle->run(text); };
    if constexpr (F::speaks == sql::dialect::postgresql) {
        const auto idle = [&] { return run("show idle_in_transaction_session_timeout"); };
        const auto wait = [&] { return run("show lock_timeout"); };
        const auto db = it.handle->ref();
        run("set lock_timeout = '12345ms'");
        run("begin");
        fence(*db, lease, long_limit);
        CHECK(idle() == "30s");
        CHECK(wait() == "12345ms");
        fence(*db, lease, {.statement_timeout = 20s, .max_idle = 50s});  // never raised
        CHECK(idle() == "30s");
        run("commit");
        CHECK(idle() == "0");
        run("set idle_in_transaction_session_timeout = '20s'");
        run("begin");
        fence(*db, lease, long_limit);
        CHECK(idle() == "20s");
        run("rollback");
        CHECK(idle() == "20s");
        CHECK(wait() == "12345ms");
    }
    if (F::speaks == sql::dialect::mysql &&
        run("select version()").find("MariaDB") != std::string::npos) {
        const auto idle = [&] { return run("select @@session.idle_transaction_timeout"); };
        const auto others = [&] {
            return run(
                "select concat(@@innodb_lock_wait_timeout, ' ', @@max_statement_time, ' ', "
                "@@tx_isolation, @@autocommit)");
        };
        const auto before = others();
        for (const char* set : {"0", "90", "20"}) {
            CAPTURE(set);
            run(std::string{"set session idle_transaction_timeout = "} + set);
            {
                const auto db = it.handle->ref();
                run("begin");
                fence(*db, lease, long_limit);
                CHECK(idle() == (std::string_view{set} == "20" ? "20" : "30"));
                fence(*db, lease, {.statement_timeout = 20s, .max_idle = 9900ms});
                CHECK(idle() == "10");
                fence(*db, lease, {.statement_timeout = 20s, .max_idle = 50s});
                CHECK(idle() == "10");
                {
                    const auto inner = it.handle->ref();
                    fence(*inner, lease, long_limit);
                }
                CHECK(idle() == "10");
                CHECK(others() == before);
            }  // in the open transaction
            CHECK(idle() == set);
            it.sell();
            run("commit");
        }
        CHECK(it.pieces() == 7);
        {
            const auto db = it.handle->ref();
            run("begin");
            fence(*db, lease, long_limit);
            run("set session idle_transaction_timeout = 25");  // the caller's own setting
        }
        CHECK(idle() == "25");
        run("rollback");
        {  // a pool that resets its connections meanwhile
            const auto db = it.handle->ref();
            for (const char* found : {"0", "90", "20"}) {
                CAPTURE(found);
                run(std::string{"set session idle_transaction_timeout = "} + found);
                run("begin");
                fence(*db, lease, long_limit);
                CHECK(idle() == (std::string_view{found} == "20" ? "20" : "30"));
                run("commit");
            }
            run("set session idle_transaction_timeout = 90");
            run("begin");
            const auto trips = db->round_trips();
            fence(*db, lease, long_limit);
            CHECK(db->round_trips() - trips > 1);
            const auto between = db->round_trips();
            fence(*db, lease, long_limit);
            CHECK(db->round_trips() - between <= 2);
            run("commit");
        }
        CHECK(idle() == "90");
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_settings, driver_fixtures);

// shows: fenced-transactions, newer-rows
TEST_CASE_TEMPLATE_DEFINE("a snapshot that is older than the grant is a conflict, a new one is not",
                          F, fence_repeated_read) {
    if (!F::available()) return;
    CAPTURE(F::name);
    if constexpr (F::speaks != sql::dialect::sqlite) {
        const shop<F> it;
        client locks{it.source(), unhurried<client_options>()};
        const auto db = it.handle->ref();
        for (const char* isolation : {"repeatable read", "serializable"}) {
            CAPTURE(isolation);
            const bool mysql = F::speaks == sql::dialect::mysql;
            const bool locking = mysql && std::string_view{isolation} == "serializable";
            const bool isolates = support::isolates_snapshots(*db);
            const auto begin = [&] {
                if (mysql)
                    it.handle->run(std::string{"set transaction isolation level "} + isolation);
                it.handle->run("begin");
                if (!mysql)
                    it.handle->run(std::string{"set transaction isolation level "} + isolation);
            };
            begin();
            it.handle->run("select pieces from " + it.stock());
            const auto lease = locks.acquire("stock");
            // InnoDB's SERIALIZABLE reads the latest rows, which are never stale. MariaDB 11.6 and
            // later refuses newer rows, and a fence that runs at the moment of a heartbeat.
            CHECK(kind_of([&] { fence(*db, lease); }) ==
                  (locking && !isolates ? errc{} : errc::conflict));
            it.handle->run("rollback");
            CHECK(lease.held());
            const auto fence_first = [&] {
                for (int attempt = 1;; ++attempt) {
                    begin();
                    const errc kind = kind_of([&] { fence(*db, lease); });
                    const bool passed = locking && isolates && kind == errc::conflict;
                    if (!passed || attempt == 10) return kind;
                    it.handle->run("rollback");
                }
            };
            CHECK(fence_first() == errc{});
            it.handle->run("select pieces from " + it.stock());
            it.sell();
            it.handle->run("commit");
            CHECK(lease.held());
            // A loss before the transaction began is not a conflict.
            REQUIRE(locks.force_release("stock"));
            CHECK(fence_first() == errc::lock_lost);
            it.handle->run("rollback");
        }
        CHECK(it.pieces() == 8);
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_repeated_read, driver_fixtures);

// shows: fenced-transactions
TEST_CASE_TEMPLATE_DEFINE("SQLite: a transaction that has read before the grant is a conflict", F,
                          fence_sqlite_snapshot) {
    if (!F::available()) return;
    CAPTURE(F::name);
    if constexpr (F::speaks == sql::dialect::sqlite) {
        const shop<F> it;
        client locks{it.source(), unhurried<client_options>()};
        const auto db = it.handle->ref();
        it.handle->run("begin");
        it.handle->run("select pieces from " + it.stock());
        const auto lease = locks.acquire("stock");
        CHECK(kind_of([&] { fence(*db, lease); }) == errc::conflict);
        it.handle->run("rollback");
        it.handle->run("begin");  // deferred: the fence makes it the writer
        fence(*db, lease, long_limit);
        it.sell();
        it.handle->run("commit");
        CHECK(it.pieces() == 9);
        // Another connection writes in between.
        const auto writer = F::source().connect(soon());
        writer->query("begin immediate", soon());
        it.handle->run("begin");
        it.handle->run("select pieces from " + it.stock());
        CHECK(kind_of([&] { fence(*db, lease, {.statement_timeout = 100ms}); }) == errc::timed_out);
        it.handle->run("rollback");
        writer->query("rollback", soon());
        CHECK(lease.held());
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_sqlite_snapshot, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE(
    "SQLite: a transaction that is longer than the ttl fails its second fence", F,
    fence_session_time) {
    if (!F::available()) return;
    CAPTURE(F::name);
    if constexpr (F::speaks == sql::dialect::sqlite) {
        const shop<F> it;
        client locks{it.source(), {.ttl = 600ms}};
        rowlock::lease lease;
        const auto db = it.handle->ref();
        // A stall may use up the ttl before.
        const auto fenced_twice = [&] {
            lease = {};
            lease = locks.acquire("stock");
            it.handle->run("begin immediate");
            const auto fenced = kind_of([&] {
                fence(*db, lease, long_limit);
                fence(*db, lease, long_limit);
            });
            if (fenced != errc{}) it.handle->run("rollback");
            return fenced == errc{};
        };
        REQUIRE(eventually(fenced_twice));
        // No heartbeat can write now, so the session expires after its ttl.
        REQUIRE(eventually([&] { return !lease.held(); }));
        CHECK(kind_of([&] { fence(*db, lease); }) == errc::lock_lost);
        it.handle->run("rollback");
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_session_time, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a transaction that a deadlock rolled back is not taken for an open one",
                          F, fence_deadlock) {
    if (!F::available()) return;
    CAPTURE(F::name);
    if constexpr (F::speaks == sql::dialect::mysql) {
        const shop<F> it;
        client locks{it.source(), unhurried<client_options>()};
        auto lease = locks.acquire("stock");
        it.run("insert into " + it.stock() + " values (2, 10), (3, 10), (4, 10), (5, 10), (6, 10)");
        const auto change = [&](const char* where) {
            return "update " + it.stock() + " set pieces = pieces + 1 where sku " + where;
        };
        const auto db = it.handle->ref();
        it.handle->run("begin");
        fence(*db, lease, long_limit);
        it.handle->run(change("= 1"));
        const auto other = F::source().connect(soon());
        other->query("begin", soon());
        other->query(change("> 1"), soon());  // more rows, so it is not the victim
        std::thread waiting{[&] { other->query(change("= 1"), soon()); }};
        REQUIRE(support::waiting_for_rows(*it.admin, it.prefix));
        CHECK_THROWS(it.handle->run(change("= 2")));  // the server has rolled back
        waiting.join();
        CHECK(kind_of([&] { fence(*db, lease); }) == errc::invalid_options);
        CHECK(kind_of([&] { release_on_commit(*db, lease); }) == errc::invalid_options);
        CHECK(lease.held());
        other->query("rollback", soon());
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_deadlock, driver_fixtures);

/// Settings that a caller may have made on its handle, each for a session.
std::vector<std::string> settings_of_callers(sql::dialect speaks) {
    if (speaks == sql::dialect::postgresql) {
        return {"set datestyle = 'german'",       "set intervalstyle = 'sql_standard'",
                "set timezone = 'Asia/Kolkata'",  "set standard_conforming_strings = off",
                "set array_nulls = off",          "set transform_null_equals = on",
                "set quote_all_identifiers = on", "set bytea_output = escape",
                "set extra_float_digits = -15",   "set client_min_messages = error",
                "set enable_indexscan = off",     "set default_transaction_deferrable = on"};
    }
    if (speaks == sql::dialect::sqlite) {
        return {"pragma reverse_unordered_selects = on", "pragma case_sensitive_like = on",
                "pragma recursive_triggers = on", "pragma foreign_keys = on"};
    }
    std::vector<std::string> all{
        "set collation_connection = utf8mb3_unicode_ci",
        "set collation_connection = latin1_swedish_ci",
        "set collation_connection = utf8mb4_unicode_ci",
        "set names latin1",
        "set names utf8mb4 collate utf8mb4_unicode_ci",
        "set sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE,NO_BACKSLASH_ESCAPES'",
        "set sql_mode = ''",
        "set sql_safe_updates = 1",
        "set sql_select_limit = 1",
        "set max_join_size = 1",
        "set sql_auto_is_null = 1",
        "set div_precision_increment = 0",
        "set time_zone = '+05:30'",
        "set timestamp = 1"};
    if (!support::mysql_alone()) {
        all.insert(all.end(), {"set sql_mode = 'ORACLE'",
                               "set sql_mode = 'EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT'"});
    }
    return all;
}

TEST_CASE_TEMPLATE_DEFINE("what is done on the caller's handle is right under any setting of it", F,
                          fence_any_setting) {
    if (!F::available()) return;
    CAPTURE(F::name);
    const shop<F> it;
    client locks{it.source(), unhurried<client_options>()};
    client others{it.source(), unhurried<client_options>()};
    const versions resources{it.source().tables()};
    // BEGIN begins a block if sql_mode is ORACLE.
    const std::string begin =
        F::speaks == sql::dialect::mysql ? "start transaction" : std::string{it.begin()};
    for (const auto& setting : settings_of_callers(F::speaks)) {
        CAPTURE(setting);
        const auto handle = F::borrow();
        if (F::speaks == sql::dialect::sqlite) handle->run("pragma busy_timeout = 20000");
        for (const std::string name : {"käse", "замок", "锁", "🔒"}) {
            CAPTURE(name);
            const auto db = handle->ref();
            auto lease = locks.acquire(name);
            handle->run(setting);
            handle->run(begin);
            fence(*db, lease, long_limit);
            fence(*db, lease, long_limit);
            const auto seen = resources.read(*db, name);
            if (!seen) {
                CHECK(resources.create(*db, name));
            } else {
                CHECK(resources.update(*db, name, *seen));
            }
            handle->run("commit");
            REQUIRE(others.force_release(name));
            handle->run(begin);
            CHECK(kind_of([&] { fence(*db, lease, long_limit); }) == errc::lock_lost);
            handle->run("rollback");
            auto again = locks.acquire(name);
            handle->run(begin);
            release_on_commit(*db, again, long_limit);
            handle->run("commit");
            CHECK(others.try_acquire(name));
        }
    }
    // Each name is one resource, under the name that it was given.
    const auto all = resources.list(*it.admin);
    CHECK(all.size() == 4);
    CHECK(std::ranges::count(all, "🔒", &versioned_resource::resource) == 1);
}
TEST_CASE_TEMPLATE_APPLY(fence_any_setting, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a setting that forbids a write on the caller's handle is named", F,
                          fence_forbidden) {
    if (!F::available()) return;
    CAPTURE(F::name);
    if constexpr (F::speaks != sql::dialect::sqlite) {
        const shop<F> it;
        client locks{it.source(), unhurried<client_options>()};
        auto lease = locks.acquire("stock");
        const auto handle = F::borrow();
        const auto db = handle->ref();
        handle->run(F::speaks == sql::dialect::postgresql ? "set default_transaction_read_only = on"
                                                          : "set session transaction read only");
        handle->run("begin");
        std::string why;
        try {
            release_on_commit(*db, lease, long_limit);
        } catch (const error& failure) {
            CHECK(failure.kind() == errc::read_only);
            why = failure.what();
        }
        CHECK(why.find("transaction_read_only") != std::string::npos);
        handle->run("rollback");
        CHECK(lease.held());
    }
}
TEST_CASE_TEMPLATE_APPLY(fence_forbidden, driver_fixtures);

}  // namespace contract
