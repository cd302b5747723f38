// The suite that every driver passes: the promises of include/rowlock/sql/connection.hpp, tested
// through each fixture of driver_fixtures.hpp.
#include "driver/driver_fixtures.hpp"
#include "support/processlist.hpp"
#include "support/tcp_listener.hpp"
#include "support/tcp_relay.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::errc;
using rowlock::sql::connection;
using rowlock::sql::connection_source;
using rowlock::sql::dialect;
using rowlock::sql::result;
using rowlock::sql::statement;
using rowlock::sql::value;
using clock = std::chrono::steady_clock;
using support::soon;

struct failure {
    errc kind{};
    std::string text;
    std::string sqlstate;
    std::chrono::milliseconds after{};
};

// Parameters of one call. (clang 14 takes std::vector<value>{1} in a template for a vector of one
// default value.)
template <typename... Values>
std::vector<value> with(const Values&... values) {
    const std::initializer_list<value> list{value{values}...};
    return list;
}

// The failure of `call`, which must throw a rowlock::error.
template <typename Call>
failure failure_of(Call call) {
    const auto start = clock::now();
    try {
        call();
    } catch (const rowlock::error& e) {
        const auto took =
            std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start);
        return {e.kind(), std::string{e.what()} + " | " + e.server_message(), e.sqlstate(), took};
    }
    FAIL_CHECK("no error was thrown");
    return {};
}

result run(connection& on, const std::string& text, std::vector<value> parameters = {}) {
    return on.execute(statement{text}, parameters, soon());
}

std::string id_of(connection& of) {
    const bool mysql = of.speaks() == dialect::mysql;
    return std::string{
        of.query(mysql ? "select connection_id()" : "select pg_backend_pid()", soon()).text(0, 0)};
}

void kill(connection& by, const std::string& id) {
    (void)by.query(
        by.speaks() == dialect::mysql ? "kill " + id : "select pg_terminate_backend(" + id + ")",
        soon());
}

// Runs for many seconds unless it is stopped. Not sleep(), which MySQL ends without an error.
std::string endless(dialect speaks) {
    switch (speaks) {
        case dialect::postgresql:
            return "select pg_sleep(30)";
        case dialect::mysql:
            return "select benchmark(2000000000, sha2('x', 256))";
        case dialect::sqlite:
            break;
    }
    return "with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) from c";
}

// The settings that a driver could change on a borrowed handle.
std::string settings_of(borrowed_handle& handle, dialect speaks) {
    if (speaks == dialect::postgresql) {
        return handle.run(
                   "select string_agg(name || '=' || setting, ',' order by name) "
                   "from pg_settings") +
               handle.run("select count(*) from pg_prepared_statements");
    }
    if (speaks == dialect::mysql) {
        const bool mariadb = handle.run("select version()").find("MariaDB") != std::string::npos;
        return handle.run(mariadb ? "select @@session.tx_isolation"
                                  : "select @@session.transaction_isolation") +
               handle.run(
                   "select concat_ws(',', @@session.autocommit, @@session.sql_mode, "
                   "@@session.time_zone, @@session.innodb_lock_wait_timeout, "
                   "@@session.character_set_client, @@session.character_set_results, "
                   "@@session.collation_connection, @@session.net_read_timeout)");
    }
    return handle.run("pragma busy_timeout") + handle.run("pragma journal_mode") +
           handle.run("pragma synchronous") + handle.run("pragma foreign_keys");
}

// A table of this test alone, dropped through its own connection.
template <driver_fixture F>
class scratch_table {
public:
    scratch_table() : name_{new_name()}, keeper_{F::source().connect(soon())} {
        const bool mysql = F::speaks == dialect::mysql;
        (void)keeper_->query("create table " + name_ +
                                 " (id bigint primary key, number bigint, words " +
                                 (mysql ? "longtext character set utf8mb4" : "text") + ", bytes " +
                                 (mysql ? "longblob) engine=InnoDB" : "text)"),
                             soon());
    }
    scratch_table(const scratch_table&) = delete;
    scratch_table& operator=(const scratch_table&) = delete;
    ~scratch_table() {
        try {
            keeper_ = F::source().connect(soon());
            (void)keeper_->query("drop table " + name_, soon());
        } catch (const std::exception& e) {
            FAIL_CHECK("cannot drop " << name_ << ": " << e.what());
        }
    }
    [[nodiscard]] const std::string& name() const { return name_; }

private:
    static std::string new_name() {
        static std::atomic<int> count{0};
        return "contract_" + std::to_string(::getpid()) + "_" + std::to_string(++count);
    }

    std::string name_;
    std::unique_ptr<connection> keeper_;
};

}  // namespace

// --- values --------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE_DEFINE("values are returned as they were sent", F, round_trip) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const statement insert{"insert into " + table.name() +
                           " (id, number, words, bytes) values ($1, $2, $3, $4)"};
    const statement select{"select number, words, bytes, id from " + table.name() +
                           " where id = $1"};
    const std::vector<std::optional<std::int64_t>> numbers{
        std::nullopt, 0, -1, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()};
    const std::vector<std::optional<std::string>> texts{
        std::nullopt,
        "",
        " ",
        R"(it's "quoted" `x` \ \' \n $1 ? :p1 :a -- /* # %s)",
        "\xf0\x9f\x94\x92 \xc3\xa4 \xe2\x82\xac",
        "line\nline\r\n\ttab\x1a",
        std::string(1'000'000, 'x') + "end"};
    std::int64_t id = 0;
    for (const auto& number : numbers) {
        for (const auto& text : texts) {
            CAPTURE(id);
            const std::vector<value> row{++id, number, text, text};
            CHECK(db->execute(insert, row, soon()).affected() == 1);
            const result back = db->execute(select, with(id), soon());
            REQUIRE(back.rows() == 1);
            REQUIRE(back.columns() == 4);
            CHECK(back.maybe_integer(0, 0) == number);
            for (const std::size_t column : {1U, 2U}) {
                CHECK(back.is_null(0, column) == !text.has_value());
                CHECK((back.text(0, column) == text.value_or("")));
            }
            CHECK(back.integer(0, 3) == id);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(round_trip, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a NUL byte in text is kept or refused, and never truncates it", F,
                          nul_byte) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const std::string text{"a\0b", 3};
    const auto insert = [&] {
        run(*db, "insert into " + table.name() + " (id, bytes) values ($1, $2)", {1, text});
    };
    if constexpr (F::limits.nul_in_text) {
        insert();
        const result back = run(*db, "select bytes from " + table.name());
        REQUIRE(back.rows() == 1);
        CHECK(back.text(0, 0) == text);
    } else {
        CHECK(failure_of(insert).kind == errc::invalid_options);
        CHECK(run(*db, "select id from " + table.name()).empty());
    }
}
TEST_CASE_TEMPLATE_APPLY(nul_byte, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("parameters may repeat and appear in any order", F, any_order) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    run(*db, "insert into " + table.name() + " (words, number, bytes, id) values ($3, $1, $3, $2)",
        {10, 20, "thirty"});
    const result back = run(*db,
                            "select id, number, words, bytes from " + table.name() +
                                " where words = $2 and id = $1 and bytes = $2 and id = $1",
                            {20, "thirty"});
    REQUIRE(back.rows() == 1);
    CHECK(back.integer(0, 0) == 20);
    CHECK(back.integer(0, 1) == 10);
    CHECK(back.text(0, 2) == "thirty");
    CHECK(back.text(0, 3) == "thirty");
}
TEST_CASE_TEMPLATE_APPLY(any_order, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a statement is given exactly the parameters it takes", F,
                          parameter_count) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const statement select{"select id from " + table.name() + " where id = $1 and number = $2"};
    for (const std::size_t count : {0U, 1U, 3U}) {
        CAPTURE(count);
        const std::vector<value> parameters(count, value{1});
        CHECK(failure_of([&] { (void)db->execute(select, parameters, soon()); }).kind ==
              errc::invalid_options);
    }
    CHECK(db->execute(select, with(1, 2), soon()).empty());
}
TEST_CASE_TEMPLATE_APPLY(parameter_count, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("many rows come back in order", F, many_rows) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const statement insert{"insert into " + table.name() + " (id, words) values ($1, $2)"};
    (void)db->query("begin", soon());
    for (int id = 0; id < 1000; ++id) {
        const std::string text(static_cast<std::size_t>(id % 97), 'y');
        (void)db->execute(insert, with(id, text), soon());
    }
    (void)db->query("commit", soon());
    const result back = run(*db, "select id, words from " + table.name() + " order by id");
    REQUIRE(back.rows() == 1000);
    for (std::size_t row = 0; row < 1000; ++row) {
        REQUIRE(back.integer(row, 0) == static_cast<std::int64_t>(row));
        REQUIRE(back.text(row, 1).size() == row % 97);
    }
}
TEST_CASE_TEMPLATE_APPLY(many_rows, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("affected() counts the rows a statement changed", F, affected) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const std::string& t = table.name();
    CHECK(run(*db, "insert into " + t + " (id, number) values ($1, 1), ($2, 1), ($3, 1)", {1, 2, 3})
              .affected() == 3);
    CHECK(run(*db, "update " + t + " set number = number + 1 where id >= $1", {2}).affected() == 2);
    CHECK(run(*db, "update " + t + " set number = number + 1 where id = $1", {9}).affected() == 0);
    CHECK(run(*db, "delete from " + t + " where id = $1", {1}).affected() == 1);
    CHECK(db->query("update " + t + " set number = number + 1", soon()).affected() == 2);
    CHECK(db->query("select id from " + t, soon()).rows() == 2);
    CHECK(run(*db, "select id from " + t).columns() == 1);
}
TEST_CASE_TEMPLATE_APPLY(affected, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("an insert can return rows", F, returning) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    if (F::speaks == dialect::mysql &&
        db->query("select version()", soon()).text(0, 0).find("MariaDB") ==
            std::string_view::npos) {
        return;  // only MariaDB has INSERT … RETURNING
    }
    const statement insert{"insert into " + table.name() +
                           " (id, number) values ($1, $2) returning number, id"};
    for (const int id : {1, 2}) {
        const result back = db->execute(insert, with(id, 10 * id), soon());
        REQUIRE(back.rows() == 1);
        CHECK(back.integer(0, 0) == 10 * id);
        CHECK(back.integer(0, 1) == id);
    }
    CHECK(run(*db, "select id from " + table.name()).rows() == 2);
}
TEST_CASE_TEMPLATE_APPLY(returning, driver_fixtures);

// --- statements and transactions -----------------------------------------------------------------

TEST_CASE_TEMPLATE_DEFINE("a statement is prepared once and then costs one round trip", F, counts) {
    if (!F::available()) return;
    const auto db = F::source().connect(soon());
    const statement select{"select 1 + $1"};
    const auto cost = [&](const auto& call) {
        const std::uint64_t before = db->round_trips();
        call();
        return db->round_trips() - before;
    };
    const auto execute = [&] { (void)db->execute(select, with(1), soon()); };
    CHECK(cost(execute) <= F::limits.first_round_trips);
    CHECK(cost(execute) == 1);
    CHECK(cost(execute) == 1);
    CHECK(cost([&] { (void)db->query("select 1", soon()); }) == 1);
}
TEST_CASE_TEMPLATE_APPLY(counts, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("one statement serves several connections, its copies too", F, shared) {
    if (!F::available()) return;
    const auto one = F::source().connect(soon());
    const auto two = F::source().connect(soon());
    const statement select{"select 1 + $1"};
    const std::vector<statement> copies(2, select);
    for (const int n : {1, 2, 3}) {
        CHECK(one->execute(select, with(n), soon()).integer(0, 0) == 1 + n);
        CHECK(two->execute(copies.back(), with(n), soon()).integer(0, 0) == 1 + n);
    }
    CHECK(one->round_trips() <= 2 + F::limits.first_round_trips);
}
TEST_CASE_TEMPLATE_APPLY(shared, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("hundreds of statements may be kept on one connection", F,
                          many_statements) {
    if (!F::available()) return;
    const auto db = F::source().connect(soon());
    std::vector<statement> statements;
    statements.reserve(200);
    for (int n = 0; n < 200; ++n) statements.emplace_back("select $1 + " + std::to_string(n));
    for (int round = 0; round < 2; ++round) {
        for (int n = 0; n < 200; ++n) {
            const auto back = db->execute(statements[static_cast<std::size_t>(n)], with(1), soon());
            REQUIRE(back.integer(0, 0) == n + 1);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(many_statements, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a transaction is rolled back or committed as asked", F, transactions) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const auto other = F::source().connect(soon());
    const statement insert{"insert into " + table.name() + " (id) values ($1)"};
    const auto seen = [&] { return run(*other, "select id from " + table.name()).rows(); };
    (void)db->query("begin", soon());
    (void)db->execute(insert, with(1), soon());
    (void)db->query("rollback", soon());
    CHECK(seen() == 0);
    (void)db->query("begin", soon());
    (void)db->execute(insert, with(1), soon());
    CHECK(seen() == 0);
    (void)db->query("commit", soon());
    CHECK(seen() == 1);
    (void)db->execute(insert, with(2), soon());
    CHECK(seen() == 2);
}
TEST_CASE_TEMPLATE_APPLY(transactions, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a connection reports its transaction state correctly, or as unknown", F,
                          knows_transaction) {
    if (!F::available()) return;
    using state = rowlock::sql::transaction_state;
    const auto handle = F::borrow();
    const auto db = handle->ref();
    const bool tells = db->transaction() != state::unknown;
    CHECK(tells == (std::string_view{F::name} != "Connector/C++"));
    if (!tells) return;
    CHECK(db->transaction() == state::none);
    db->query("begin", soon());
    CHECK(db->transaction() == state::open);
    CHECK_THROWS_AS(db->query("select no_such_column", soon()), rowlock::error);
    // MySQL's errors do not say whether the transaction ended with the statement.
    using rowlock::sql::dialect;
    CHECK(db->transaction() == (F::speaks == dialect::postgresql ? state::failed
                                : F::speaks == dialect::mysql    ? state::unknown
                                                                 : state::open));
    db->query("rollback", soon());
    CHECK(db->transaction() == state::none);
    handle->run("begin");  // by the handle's owner, without the driver
    CHECK(db->transaction() == state::open);
    handle->run("rollback");
    CHECK(db->transaction() == state::none);
}
TEST_CASE_TEMPLATE_APPLY(knows_transaction, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("two threads work on a connection each", F, threads) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const statement insert{"insert into " + table.name() + " (id, words) values ($1, $2)"};
    const connection_source source = F::source();
    const auto work = [&](int first) {
        const auto db = source.connect(soon());
        for (int n = 0; n < 50; ++n) {
            (void)db->execute(insert, with(first + n, "x"), soon());
        }
    };
    {
        const std::jthread one{work, 0};
        const std::jthread two{work, 1000};
    }
    const auto db = source.connect(soon());
    CHECK(run(*db, "select id from " + table.name()).rows() == 100);
}
TEST_CASE_TEMPLATE_APPLY(threads, driver_fixtures);

// --- refusals: the connection stays usable -------------------------------------------------------

TEST_CASE_TEMPLATE_DEFINE("a unique violation is reported, and the connection stays usable", F,
                          unique) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const statement insert{"insert into " + table.name() + " (id) values ($1)"};
    (void)db->execute(insert, with(1), soon());
    for (int repeat = 0; repeat < 3; ++repeat) {
        const failure told = failure_of([&] { (void)db->execute(insert, with(1), soon()); });
        CHECK(told.kind == errc::unique_violation);
    }
    CHECK(db->alive());
    CHECK(db->execute(insert, with(2), soon()).affected() == 1);
}
TEST_CASE_TEMPLATE_APPLY(unique, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a missing table or column is an outdated schema", F, missing_table) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const statement select{"select id from contract_no_such_table where id = $1"};
    for (int repeat = 0; repeat < 2; ++repeat) {
        const failure told = failure_of([&] { (void)db->execute(select, with(1), soon()); });
        CHECK(told.kind == errc::schema_outdated);
    }
    CHECK(failure_of([&] { run(*db, "select no_such_column from " + table.name()); }).kind ==
          errc::schema_outdated);
    CHECK(failure_of([&] { (void)db->query("select 1 from no_such_table", soon()); }).kind ==
          errc::schema_outdated);
    CHECK(db->alive());
    CHECK(run(*db, "select 1").integer(0, 0) == 1);
}
TEST_CASE_TEMPLATE_APPLY(missing_table, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a syntax error is the database's error, and leaves no trace", F,
                          syntax) {
    if (!F::available()) return;
    const auto db = F::source().connect(soon());
    CHECK(failure_of([&] { run(*db, "selekt 1"); }).kind == errc::database_error);
    CHECK(failure_of([&] { (void)db->query("selekt 1", soon()); }).kind == errc::database_error);
    CHECK(db->alive());
    CHECK(run(*db, "select 1").integer(0, 0) == 1);
}
TEST_CASE_TEMPLATE_APPLY(syntax, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a statement that failed to prepare in a transaction works after it", F,
                          failed_prepare) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const statement insert{"insert into " + table.name() + "_late (id) values ($1)"};
    (void)db->query("begin", soon());
    CHECK(failure_of([&] { (void)db->execute(insert, with(1), soon()); }).kind ==
          errc::schema_outdated);
    CHECK_THROWS_AS((void)db->execute(insert, with(1), soon()), rowlock::error);
    (void)db->query("rollback", soon());
    (void)db->query("create table " + table.name() + "_late (id bigint primary key)", soon());
    CHECK(db->execute(insert, with(1), soon()).affected() == 1);
    (void)db->query("drop table " + table.name() + "_late", soon());
    CHECK(db->alive());
}
TEST_CASE_TEMPLATE_APPLY(failed_prepare, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a prepared statement survives a change of its table", F, changed_table) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const auto other = F::source().connect(soon());
    const statement select{"select * from " + table.name() + " where id = $1"};
    const auto look = [&] { return db->execute(select, with(1), soon()); };
    run(*db, "insert into " + table.name() + " (id, number) values (1, 2)");
    CHECK(look().columns() == 4);
    const std::string wide(100'000, 'w');
    const std::string type = F::speaks == dialect::mysql ? "longtext" : "text";
    (void)other->query("alter table " + table.name() + " add column later " + type, soon());
    run(*other, "update " + table.name() + " set later = $1", {wide});
    if constexpr (!F::limits.survives_new_columns) {
        CHECK(failure_of(look).kind == errc::outcome_unknown);
        CHECK(db->alive());
    }
    for (int repeat = 0; repeat < 2; ++repeat) {
        const result back = look();
        REQUIRE(back.columns() == 5);
        REQUIRE(back.rows() == 1);
        CHECK(back.integer(0, 1) == 2);
        CHECK((back.text(0, 4) == wide));
    }
}
TEST_CASE_TEMPLATE_APPLY(changed_table, driver_fixtures);

// --- deadlines -----------------------------------------------------------------------------------

TEST_CASE_TEMPLATE_DEFINE("a lock that is not granted in time is a timeout, and nothing is done", F,
                          lock_wait) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto holder = F::source().connect(soon());
    const auto waiter = F::source().connect(soon());
    run(*holder, "insert into " + table.name() + " (id, number) values (1, 0)");
    const statement update{"update " + table.name() + " set number = number + 1 where id = $1"};
    if (F::speaks == dialect::postgresql) (void)waiter->query("set lock_timeout = '600ms'", soon());
    if (F::speaks == dialect::mysql) {
        (void)waiter->query("set session innodb_lock_wait_timeout = 1", soon());
    }
    (void)holder->query("begin", soon());
    (void)holder->execute(update, with(1), soon());
    const auto until = F::speaks == dialect::sqlite ? clock::now() + 600ms : clock::now() + 40s;
    const failure told = failure_of([&] { (void)waiter->execute(update, with(1), until); });
    CHECK(told.kind == errc::timed_out);
    CHECK(told.after >= 500ms);
    CHECK(told.after < 20s);
    CHECK(waiter->alive());
    (void)holder->query("commit", soon());
    CHECK(waiter->execute(update, with(1), soon()).affected() == 1);
    CHECK(run(*waiter, "select number from " + table.name()).integer(0, 0) == 2);
}
TEST_CASE_TEMPLATE_APPLY(lock_wait, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a slow statement ends at its deadline", F, slow_statement) {
    if (!F::available()) return;
    if constexpr (F::limits.deadline_slack.has_value()) {
        for (const bool prepared : {true, false}) {
            CAPTURE(prepared);
            const auto time_to_fail = [&] {
                const auto db = F::source().connect(soon());
                std::string id;
                if constexpr (F::limits.server) id = id_of(*db);
                const statement slow{endless(F::speaks)};
                const failure told = failure_of([&] {
                    const auto until = clock::now() + 300ms;
                    if (prepared) {
                        (void)db->execute(slow, {}, until);
                    } else {
                        (void)db->query(slow.text(), until);
                    }
                });
                CHECK(told.after >= 250ms);
                if (db->alive()) {
                    CHECK(told.kind == errc::timed_out);
                    CHECK(run(*db, "select 1").integer(0, 0) == 1);
                } else {
                    CHECK(told.kind == errc::outcome_unknown);
                    CHECK(failure_of([&] { run(*db, "select 1"); }).kind ==
                          errc::database_unreachable);
                    // The server may still run it.
                    if constexpr (F::limits.server) kill(*F::source().connect(soon()), id);
                }
                return told.after;
            };
            const auto bound = 300ms + *F::limits.deadline_slack;
            CHECK(support::at_best(bound, time_to_fail) < bound);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(slow_statement, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a deadline that has passed sends nothing", F, past_deadline) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto db = F::source().connect(soon());
    const statement insert{"insert into " + table.name() + " (id) values ($1)"};
    const auto past = clock::now() - 1ms;
    CHECK(failure_of([&] { (void)db->execute(insert, with(1), past); }).kind == errc::timed_out);
    CHECK(failure_of([&] { (void)db->query("delete from " + table.name(), past); }).kind ==
          errc::timed_out);
    CHECK(db->alive());
    CHECK(run(*db, "select id from " + table.name()).empty());
}
TEST_CASE_TEMPLATE_APPLY(past_deadline, driver_fixtures);

// --- broken connections --------------------------------------------------------------------------

TEST_CASE_TEMPLATE_DEFINE(
    "a connection killed by the server is dead: outcome unknown, then unreachable", F, killed) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        for (const bool prepared : {true, false}) {
            CAPTURE(prepared);
            const auto killer = F::source().connect(soon());
            const auto db = F::source().connect(soon());
            const statement select{"select 1"};
            (void)db->execute(select, {}, soon());
            kill(*killer, id_of(*db));
            const auto call = [&] {
                if (prepared) {
                    (void)db->execute(select, {}, soon());
                } else {
                    (void)db->query("select 1", soon());
                }
            };
            CHECK(db->alive());
            CHECK(failure_of(call).kind == errc::outcome_unknown);
            CHECK_FALSE(db->alive());
            CHECK(failure_of(call).kind == errc::database_unreachable);
            CHECK(failure_of([&] { run(*db, "select 2"); }).kind == errc::database_unreachable);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(killed, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a connection killed in mid-statement: outcome unknown", F, killed_amid) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        const auto killer = F::source().connect(soon());
        const auto db = F::source().connect(soon());
        const std::string id = id_of(*db);
        std::jthread assassin{[&] {
            const auto is_busy = [&](const support::mysql_process& one) {
                return std::to_string(one.id) == id && one.statement.starts_with("select bench");
            };
            const std::string busy = "select 1 from pg_stat_activity where pid = " + id +
                                     " and query like 'select pg_sleep%' and state = 'active'";
            const auto runs = [&] {
                return F::speaks == dialect::mysql ? !support::processes(*killer, is_busy).empty()
                                                   : !killer->query(busy, soon()).empty();
            };
            if (support::eventually(runs)) kill(*killer, id);
        }};
        CHECK(failure_of([&] { run(*db, endless(F::speaks)); }).kind == errc::outcome_unknown);
        CHECK_FALSE(db->alive());
    }
}
TEST_CASE_TEMPLATE_APPLY(killed_amid, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE(
    "a lost answer is an unknown outcome, although the statement was executed", F, lost_answer) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        if (!F::limits.deadline_slack) return;
        const scratch_table<F> table;
        const statement insert{"insert into " + table.name() + " (id) values ($1)"};
        int last = 0;
        const auto time_to_fail = [&] {
            support::tcp_relay relay{F::server_port()};
            const auto db = F::source_with({.port = relay.port()}).connect(soon());
            (void)db->execute(insert, with(++last), soon());
            relay.swallow_answers();
            const auto parameters = with(++last);
            const failure told =
                failure_of([&] { (void)db->execute(insert, parameters, clock::now() + 300ms); });
            CHECK(told.kind == errc::outcome_unknown);
            CHECK(told.after >= 250ms);
            CHECK_FALSE(db->alive());
            CHECK(failure_of([&] { run(*db, "select 1"); }).kind == errc::database_unreachable);
            const auto other = F::source().connect(soon());
            CHECK(support::eventually([&] {
                return run(*other, "select id from " + table.name()).rows() ==
                       static_cast<std::size_t>(last);
            }));
            return told.after;
        };
        const auto bound = 300ms + *F::limits.deadline_slack;
        CHECK(support::at_best(bound, time_to_fail) < bound);
    }
}
TEST_CASE_TEMPLATE_APPLY(lost_answer, driver_fixtures);

// shows: promise-11
TEST_CASE_TEMPLATE_DEFINE("a network that falls silent costs no more than the deadline", F,
                          silence) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        if (!F::limits.deadline_slack) return;
        // The second statement is large enough to fill the kernel's buffers.
        for (const std::size_t size : {std::size_t{1}, std::size_t{12'000'000}}) {
            CAPTURE(size);
            const std::string text(size, 'x');
            const auto parameters = with(text);
            const auto time_to_fail = [&] {
                support::tcp_relay relay{F::server_port()};
                const auto db = F::source_with({.port = relay.port()}).connect(soon());
                relay.fall_silent();
                const statement echo{"select length($1)"};
                const failure told =
                    failure_of([&] { (void)db->execute(echo, parameters, clock::now() + 300ms); });
                CHECK(told.kind == errc::outcome_unknown);
                CHECK_FALSE(db->alive());
                return told.after;
            };
            const auto bound = 300ms + *F::limits.deadline_slack;
            CHECK(support::at_best(bound, time_to_fail) < bound);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(silence, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a connection cut in mid-statement: outcome unknown", F, cut_off) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        support::tcp_relay relay{F::server_port()};
        const auto db = F::source_with({.port = relay.port()}).connect(soon());
        relay.cut();
        CHECK(failure_of([&] { run(*db, "select 1"); }).kind == errc::outcome_unknown);
        CHECK_FALSE(db->alive());
        CHECK(failure_of([&] { run(*db, "select 1"); }).kind == errc::database_unreachable);
    }
}
TEST_CASE_TEMPLATE_APPLY(cut_off, driver_fixtures);

// shows: promise-11
TEST_CASE_TEMPLATE_DEFINE("a dead connection is destroyed without waiting", F, close_timeout) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        if (!F::limits.deadline_slack) return;
        for (const bool used : {true, false}) {
            CAPTURE(used);
            const auto time_to_close = [&] {
                support::tcp_relay relay{F::server_port()};
                auto db = F::source_with({.port = relay.port()}).connect(soon());
                relay.fall_silent();
                if (used) {
                    const auto told =
                        failure_of([&] { (void)db->query("select 1", clock::now() + 100ms); });
                    CHECK(told.kind == errc::outcome_unknown);
                }
                const auto start = clock::now();
                db.reset();
                return clock::now() - start;
            };
            CHECK(support::at_best(500ms, time_to_close) < 500ms);
        }
    }
}
TEST_CASE_TEMPLATE_APPLY(close_timeout, driver_fixtures);

// --- connecting ----------------------------------------------------------------------------------

TEST_CASE_TEMPLATE_DEFINE("the error for a wrong password does not contain it", F, wrong_password) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        const std::string password = "Xq7-not-the-password";
        const connection_source source = F::source_with({.password = password});
        CHECK(source.description().find(password) == std::string::npos);
        const failure told = failure_of([&] { (void)source.connect(soon()); });
        CHECK(told.kind == errc::access_denied);
        CHECK(told.text.find(password) == std::string::npos);
    }
}
TEST_CASE_TEMPLATE_APPLY(wrong_password, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("the description names the database and no password", F, description) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        const std::string text =
            F::source_with({.password = "Xq7secret", .port = 1, .database = "shop"}).description();
        CHECK(text.find("Xq7secret") == std::string::npos);
        CHECK(text.find("shop") != std::string::npos);
        CHECK(text.find("127.0.0.1") != std::string::npos);
    }
}
TEST_CASE_TEMPLATE_APPLY(description, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("the error for a missing database names it", F, missing_database) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        const auto source = F::source_with({.database = "contract_no_such_database"});
        const failure told = failure_of([&] { (void)source.connect(soon()); });
        CHECK(told.kind == errc::database_unreachable);
        CHECK(told.text.find("contract_no_such_database") != std::string::npos);
    }
}
TEST_CASE_TEMPLATE_APPLY(missing_database, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a closed port is unreachable at once", F, nobody_listens) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        const support::closed_port nobody;
        const auto source = F::source_with({.password = "Xq7secret", .port = nobody.port()});
        const failure told = failure_of([&] { (void)source.connect(soon()); });
        CHECK(told.kind == errc::database_unreachable);
        CHECK(told.after < 10s);
        CHECK(told.text.find("Xq7secret") == std::string::npos);
    }
}
TEST_CASE_TEMPLATE_APPLY(nobody_listens, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a server that accepts and stays silent is unreachable by the deadline",
                          F, says_nothing) {
    if (!F::available()) return;
    if constexpr (F::limits.server) {
        if (!F::limits.connect_slack) return;
        const support::silent_listener silent;
        const auto source = F::source_with({.port = silent.port()});
        const auto fails_within = [&](std::chrono::milliseconds patience) {
            const auto time_to_fail = [&] {
                const failure told =
                    failure_of([&] { (void)source.connect(clock::now() + patience); });
                CHECK(told.kind == errc::database_unreachable);
                CHECK(told.after >= patience - 100ms);
                return told.after;
            };
            const auto bound = patience + *F::limits.connect_slack;
            CHECK(support::at_best(bound, time_to_fail) < bound);
        };
        auto aside = std::async(std::launch::async, fails_within, 300ms);
        fails_within(1200ms);
        aside.get();
    }
}
TEST_CASE_TEMPLATE_APPLY(says_nothing, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("connecting without time left is unreachable, without an attempt", F,
                          no_time) {
    if (!F::available()) return;
    const auto source = F::source();
    const auto time_to_fail = [&] {
        const failure told = failure_of([&] { (void)source.connect(clock::now() - 1s); });
        CHECK(told.kind == errc::database_unreachable);
        return told.after;
    };
    CHECK(support::at_best(1000ms, time_to_fail) < 1s);
}
TEST_CASE_TEMPLATE_APPLY(no_time, driver_fixtures);

// --- borrowed handles ----------------------------------------------------------------------------

TEST_CASE_TEMPLATE_DEFINE("a borrowed handle is not closed, and its settings stay", F, borrowed) {
    if (!F::available()) return;
    const auto handle = F::borrow();
    const std::string before = settings_of(*handle, F::speaks);
    for (int round = 0; round < 3; ++round) {
        const auto db = handle->ref();
        const statement select{"select 1 + $1"};
        for (const int n : {1, 2, 3}) {
            CHECK(db->execute(select, with(n), soon()).integer(0, 0) == n + 1);
        }
        CHECK(db->query("select 7", soon()).integer(0, 0) == 7);
        CHECK_THROWS_AS(run(*db, "select no_such_column"), rowlock::error);
    }
    CHECK(settings_of(*handle, F::speaks) == before);
    CHECK(handle->run("select 5") == "5");
}
TEST_CASE_TEMPLATE_APPLY(borrowed, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a borrowed handle works inside its owner's transaction", F,
                          in_transaction) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto watcher = F::source().connect(soon());
    const auto seen = [&] { return run(*watcher, "select id from " + table.name()).rows(); };
    const auto handle = F::borrow();
    const statement insert{"insert into " + table.name() + " (id) values ($1)"};
    for (const bool kept : {false, true}) {
        handle->run("begin");
        {
            const auto db = handle->ref();
            for (const int id : {1, 2, 3}) {
                CHECK(db->execute(insert, with(id), soon()).affected() == 1);
            }
            CHECK(seen() == 0);
        }
        CHECK(seen() == 0);
        handle->run(kept ? "commit" : "rollback");
        CHECK(seen() == (kept ? 3 : 0));
    }
}
TEST_CASE_TEMPLATE_APPLY(in_transaction, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("a handle may be borrowed twice at a time", F, borrowed_twice) {
    if (!F::available()) return;
    const auto handle = F::borrow();
    handle->run("begin");
    const statement select{"select 1 + $1"};
    {
        const auto outer = handle->ref();
        for (const int n : {1, 2, 3}) (void)outer->execute(select, with(n), soon());
        {
            const auto inner = handle->ref();
            for (const int n : {1, 2, 3}) {
                CHECK(inner->execute(select, with(n), soon()).integer(0, 0) == n + 1);
            }
        }
        CHECK(outer->execute(select, with(4), soon()).integer(0, 0) == 5);
    }
    CHECK(handle->run("select 5") == "5");
    handle->run("commit");
}
TEST_CASE_TEMPLATE_APPLY(borrowed_twice, driver_fixtures);

TEST_CASE_TEMPLATE_DEFINE("an error in a borrowed transaction leaves the transaction to its owner",
                          F, refused_in_transaction) {
    if (!F::available()) return;
    const scratch_table<F> table;
    const auto handle = F::borrow();
    const statement insert{"insert into " + table.name() + " (id) values ($1)"};
    const auto db = handle->ref();
    (void)db->execute(insert, with(1), soon());
    for (int round = 0; round < 3; ++round) {
        handle->run("begin");
        CHECK(failure_of([&] { (void)db->execute(insert, with(1), soon()); }).kind ==
              errc::unique_violation);
        handle->run("rollback");
    }
    CHECK(db->alive());
    CHECK(db->execute(insert, with(2), soon()).affected() == 1);
}
TEST_CASE_TEMPLATE_APPLY(refused_in_transaction, driver_fixtures);

}  // namespace contract
