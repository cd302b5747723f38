#include "driver/driver_fixtures.hpp"
#include "support/failure.hpp"
#include "support/servers.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <string>

using namespace rowlock;
using namespace std::chrono_literals;
using support::kind_of;
using support::soon;

namespace {

constexpr bool is_sqlite(sql::dialect speaks) {
    return speaks == sql::dialect::sqlite;
}

/// Two handles of an application, and its table.
template <typename F>
struct shop {
    shop() {
        if (is_sqlite(F::speaks)) run("pragma journal_mode = wal");
        run("create table " + table +
            " (id integer not null primary key, sku varchar(40) not null unique, stock integer)");
        run("insert into " + table + " values (1, 'A1', 10)");
        run("insert into " + table + " values (2, 'B2', 20)");
    }
    shop(const shop&) = delete;
    shop& operator=(const shop&) = delete;
    ~shop() {
        if (std::uncaught_exceptions() > 0) {  // a failed REQUIRE
            mine->run("rollback");
            theirs->run("rollback");
        }
        run("drop table " + table);
    }

    void run(const std::string& text) { mine->run(text); }

    std::string table = "lock_row_" + std::to_string(getpid());
    std::unique_ptr<contract::borrowed_handle> mine = F::borrow();
    std::unique_ptr<contract::borrowed_handle> theirs = F::borrow();
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("a row is locked in the caller's own transaction", F, locks) {
    if (!F::available()) return;
    shop<F> store;
    const auto mine = store.mine->ref();
    const auto theirs = store.theirs->ref();
    store.mine->run("begin");
    const auto row = lock_row(*mine, store.table, {"sku"}, {"A1"}, {.columns = {"stock"}});
    REQUIRE(row);
    CHECK(row->integer("stock") == 10);
    CHECK_FALSE(lock_row(*mine, store.table, {"sku"}, {"Z9"}));
    store.mine->run("update " + store.table + " set stock = 9 where sku = 'A1'");

    const auto time_to_fail = [&] {
        store.theirs->run("begin");
        const auto start = std::chrono::steady_clock::now();
        CHECK(kind_of([&] {
                  (void)lock_row(*theirs, store.table, {"sku"}, {"A1"},
                                 {.wait = row_wait::bounded(200ms)});
              }) == errc::timed_out);
        const auto took = std::chrono::steady_clock::now() - start;
        store.theirs->run("rollback");
        return took;
    };
    CHECK(support::at_best(2s, time_to_fail) < 2s);
    store.mine->run("commit");

    store.theirs->run("begin");
    CHECK(lock_row(*theirs, store.table, {"sku"}, {"A1"},
                   {.columns = {"stock"}, .wait = row_wait::nowait()})
              ->integer("stock") == 9);
    store.theirs->run("commit");
}

TEST_CASE_TEMPLATE_DEFINE("outside a transaction lock_row is refused", F, outside) {
    if (!F::available()) return;
    shop<F> store;
    const auto mine = store.mine->ref();
    CHECK(kind_of([&] { (void)lock_row(*mine, store.table, {"sku"}, {"A1"}); }) ==
          errc::invalid_options);
    store.mine->run("begin");
    CHECK(lock_row(*mine, store.table, {"sku"}, {"A1"}));
    store.mine->run("commit");
    CHECK(kind_of([&] { (void)lock_row(*mine, store.table, {"sku"}, {"A1"}); }) ==
          errc::invalid_options);
}

TEST_CASE_TEMPLATE_DEFINE("lock_row leaves the caller's settings unchanged", F, settings) {
    if (!F::available()) return;
    if (is_sqlite(F::speaks)) return;  // lock_row changes no setting there
    shop<F> store;
    const bool postgresql = F::speaks == sql::dialect::postgresql;
    const std::string ask =
        postgresql ? "select current_setting('lock_timeout')"
        : support::mysql_alone()
            ? "select concat_ws(' ', @@max_execution_time, @@innodb_lock_wait_timeout, "
              "@@autocommit, @@transaction_isolation)"
            : "select concat_ws(' ', @@max_statement_time, @@innodb_lock_wait_timeout, "
              "@@autocommit, @@tx_isolation)";
    const auto mine = store.mine->ref();
    if (postgresql) store.mine->run("set lock_timeout = '43210ms'");
    const auto before = store.mine->run(ask);
    store.mine->run("begin");
    CHECK(lock_row(*mine, store.table, {"sku"}, {"A1"}, {.wait = row_wait::bounded(20s)}));
    CHECK(store.mine->run(ask) == before);
    store.mine->run("commit");
    CHECK(store.mine->run(ask) == before);
}

TEST_CASE_TEMPLATE_DEFINE("a transaction that PostgreSQL has aborted is left unchanged", F,
                          aborted) {
    if (!F::available()) return;
    if (F::speaks != sql::dialect::postgresql) return;
    shop<F> store;
    const auto mine = store.mine->ref();
    store.mine->run("begin");
    store.mine->run("savepoint a");
    CHECK_THROWS(mine->query("nonsense", soon()));
    CHECK(kind_of([&] { (void)lock_row(*mine, store.table, {"sku"}, {"A1"}); }) ==
          errc::invalid_options);
    store.mine->run("rollback to savepoint a");
    CHECK(lock_row(*mine, store.table, {"sku"}, {"A1"}));
    store.mine->run("commit");
}

TEST_CASE_TEMPLATE_DEFINE("a key without a unique index is refused in a transaction that goes on",
                          F, unindexed) {
    if (!F::available()) return;
    shop<F> store;
    const auto mine = store.mine->ref();
    store.mine->run("begin");
    CHECK(kind_of([&] { (void)lock_row(*mine, store.table, {"stock"}, {10}); }) ==
          errc::unindexed_key);
    CHECK(kind_of([&] { (void)lock_row(*mine, store.table, {"sku"}, {nullptr}); }) ==
          errc::invalid_options);
    CHECK(lock_row(*mine, store.table, {"id"}, {"2"}, {.columns = {"sku"}})->text("sku") == "B2");
    store.mine->run("commit");
    if (!is_sqlite(F::speaks)) return;
    // SQLite: a transaction that read before another one wrote cannot write any more.
    store.mine->run("begin");
    store.mine->run("select * from " + store.table);
    store.theirs->run("update " + store.table + " set stock = 5 where id = 1");
    CHECK(kind_of([&] { (void)lock_row(*mine, store.table, {"id"}, {1}); }) == errc::conflict);
    store.mine->run("rollback");
}

TEST_CASE_TEMPLATE_APPLY(locks, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(outside, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(settings, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(aborted, contract::driver_fixtures);
TEST_CASE_TEMPLATE_APPLY(unindexed, contract::driver_fixtures);
