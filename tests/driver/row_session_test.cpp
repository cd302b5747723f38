#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/shop.hpp"
#include "support/unhurried.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>
#include <rowlock/row_session.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <optional>

using namespace rowlock;
using namespace std::chrono_literals;
using support::at_best;
using support::kind_of;
using support::shop;
using support::soon;

namespace {

bool is_sqlite(const support::lock_database& database) {
    return database.speaks() == sql::dialect::sqlite;
}

/// For statements that must succeed: limits that are longer than a server stalls.
row_session_options unhurried() {
    return support::unhurried<row_session_options>(
        {.wait = row_wait::bounded(support::unhurried_limit)});
}

}  // namespace

TEST_CASE("a locked row is read, changed and committed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        row_session session{database.source(), unhurried()};
        const auto row = session.lock(store.table(), {"sku"}, {"A1"}, {.columns = {"stock", "id"}});
        REQUIRE(row);
        CHECK(row->integer("stock") == 10);
        CHECK(row->text("id") == "1");
        CHECK(kind_of([&] { (void)row->text("sku"); }) == errc::invalid_options);
        session.connection().query(store.take_one("A1"), soon());
        CHECK_FALSE(session.ending());
        session.commit();
        CHECK(session.ending() == row_session_ending::committed);
        CHECK(store.stock("A1") == 9);
        CHECK(kind_of([&] { session.commit(); }) == errc::invalid_options);
        CHECK(kind_of([&] { session.rollback(); }) == errc::invalid_options);
        CHECK(kind_of([&] { (void)session.connection(); }) == errc::invalid_options);
    }
}

TEST_CASE("without a commit everything is rolled back") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        {
            row_session session{database.source(), unhurried()};
            REQUIRE(session.lock(store.table(), {"id"}, {1}));
            session.connection().query(store.take_one("A1"), soon());
        }
        CHECK(store.stock("A1") == 10);
        row_session session{database.source(), unhurried()};
        session.connection().query(store.take_one("A1"), soon());
        session.rollback();
        session.rollback();
        CHECK(session.ending() == row_session_ending::rolled_back);
        CHECK(store.stock("A1") == 10);
    }
}

// shows: row-locks
TEST_CASE("a missing row is an empty answer and locks nothing") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        row_session session{database.source(), unhurried()};
        CHECK_FALSE(session.lock(store.table(), {"sku"}, {"Z9"}));
        CHECK(session.lock(store.table(), {"sku"}, {"A1"}));
        if (is_sqlite(database)) continue;
        row_session other{database.source(), unhurried()};
        CHECK_FALSE(other.lock(store.table(), {"sku"}, {"Z9"}, {.wait = row_wait::nowait()}));
    }
}

TEST_CASE("nowait and a bounded wait for a locked row fail in time, with a typed error") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        row_session holder{database.source(), unhurried()};
        REQUIRE(holder.lock(store.table(), {"sku"}, {"A1"}));
        for (const auto wait : {row_wait::nowait(), row_wait::bounded(250ms)}) {
            const bool bounded = wait.how() == row_wait::kind::bounded;
            const auto refusal = [&] {
                row_session other{database.source(), unhurried()};
                const auto start = std::chrono::steady_clock::now();
                try {
                    (void)other.lock(store.table(), {"sku"}, {"A1"}, {.wait = wait});
                    FAIL("locked twice");
                } catch (const error& failure) {
                    CHECK(failure.kind() == errc::timed_out);
                    CHECK(failure.retryable());
                }
                const auto took = std::chrono::steady_clock::now() - start;
                CHECK(took >= (bounded ? 250ms : 0ms));
                // The session has ended, whether or not the database's transaction has.
                CHECK(other.ending() == row_session_ending::rolled_back);
                CHECK(other.failed());
                CHECK(kind_of([&] { (void)other.lock(store.table(), {"sku"}, {"B2"}); }) ==
                      errc::timed_out);
                CHECK(kind_of([&] { other.commit(); }) == errc::timed_out);
                return took;
            };
            const std::chrono::steady_clock::duration bound = bounded ? 500ms : 200ms;
            CHECK(at_best(bound, refusal) < bound);
        }
    }
}

// shows: row-locks
TEST_CASE("skip_locked skips a locked row, and SQLite does not support it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        row_session holder{database.source(), unhurried()};
        REQUIRE(holder.lock(store.table(), {"sku"}, {"A1"}));
        row_session other{database.source(), unhurried()};
        const row_options skipping{.wait = row_wait::skip_locked()};
        if (is_sqlite(database)) {
            CHECK(kind_of([&] { (void)other.lock(store.table(), {"sku"}, {"A1"}, skipping); }) ==
                  errc::unsupported);
            continue;
        }
        CHECK_FALSE(other.lock(store.table(), {"sku"}, {"A1"}, skipping));
        CHECK(other.lock(store.table(), {"sku"}, {"B2"}, skipping));
    }
}

TEST_CASE("a key without a unique index is refused, and the error says what would be locked") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        for (const char* column : {"shelf", "size"}) {
            row_session session{database.source(), unhurried()};
            CHECK(kind_of([&] { (void)session.lock(store.table(), {column}, {1}); }) ==
                  errc::unindexed_key);
        }
        row_session session{database.source(), unhurried()};
        CHECK(session.lock(store.table(), {"colour", "size"}, {2, 1}, {.columns = {"sku"}})
                  ->text("sku") == "B2");
        CHECK(session.lock(store.table(), {"id", "shelf"}, {1, 7}));
        CHECK_FALSE(session.lock(store.table(), {"id", "shelf"}, {1, 8}));
    }
}

TEST_CASE("invalid keys and names are refused, and the error says so") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        const std::string view = database.prefix() + "view";
        database.run("create view " + view + " as select * from " + store.table());
        const auto kind = [&](const std::string& table, const key_columns& columns,
                              const row_key& values, const row_options& options = {}) {
            return kind_of([&] {
                row_session session{database.source(), unhurried()};
                (void)session.lock(table, columns, values, options);
            });
        };
        CHECK(kind(store.table(), {"sku"}, {nullptr}) == errc::invalid_options);
        CHECK(kind(store.table(), {"sku"}, {"A1", "B2"}) == errc::invalid_options);
        CHECK(kind(store.table(), {"id", "id"}, {1, 1}) == errc::invalid_options);
        CHECK(kind(store.table(), {}, {}) == errc::invalid_options);
        CHECK(kind(store.table(), {"nosuch"}, {1}) == errc::schema_outdated);
        CHECK(kind("no_such_table", {"id"}, {1}) == errc::schema_outdated);
        CHECK(kind("a.b.c", {"id"}, {1}) == errc::invalid_options);
        CHECK(kind("inv\"en`tory", {"id"}, {1}) == errc::schema_outdated);
        CHECK(kind(store.table(), {"id\" = 1 or `1"}, {1}) == errc::schema_outdated);
        CHECK(kind(store.table(), {"id"}, {1}, {.columns = {"nosuch"}}) == errc::schema_outdated);
        CHECK(kind(store.table(), {"id"}, {1}, {.wait = row_wait::bounded(0ms)}) ==
              errc::invalid_options);
        CHECK(kind(view, {"id"}, {1}) == errc::unsupported);
        store.drop("view " + view);
    }
}

TEST_CASE("values are bound, and in the type of the column") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        database.run("insert into " + store.table() + " values (4, '42', 9, 9, 9, 1)");
        row_session session{database.source(), unhurried()};
        CHECK(session.lock(store.table(), {"sku"}, {42}));
        CHECK(session.lock(store.table(), {"id"}, {"4"}));
        CHECK_FALSE(session.lock(store.table(), {"sku"}, {"' or 1=1 -- "}));
        session.rollback();
    }
}

TEST_CASE("a table may be named with its schema") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        const std::string schema = is_sqlite(database) ? "main"
                                   : database.speaks() == sql::dialect::mysql
                                       ? std::string{database.run("select database()").text(0, 0)}
                                       : "public";
        row_session session{database.source(), unhurried()};
        CHECK(session.lock(schema + "." + store.table(), {"sku"}, {"A1"}));
    }
}

TEST_CASE("several rows are answered in the caller's order") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        row_session session{database.source(), unhurried()};
        const auto rows = session.lock_all(store.table(), {"sku"}, {{"C3"}, {"Z9"}, {"A1"}, {"C3"}},
                                           {.columns = {"stock"}});
        REQUIRE(rows.size() == 4);
        CHECK(rows[0]->integer("stock") == 30);
        CHECK_FALSE(rows[1]);
        CHECK(rows[2]->integer("stock") == 10);
        CHECK(rows[3]);
        CHECK(session.lock_all(store.table(), {"sku"}, {}).empty());
    }
}

TEST_CASE("a resource without a table of its own is locked by name") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        for (int round = 0; round < 2; ++round) {
            row_session holder{database.source(), unhurried()};
            holder.lock_resource("tenant/42");
            row_session other{database.source(), unhurried()};
            CHECK(kind_of([&] { other.lock_resource("tenant/42", row_wait::nowait()); }) ==
                  errc::timed_out);
            holder.commit();
            row_session third{database.source(), unhurried()};
            third.lock_resource("tenant/42", row_wait::bounded(20s));
        }
        CHECK(database.number("select count(*) from rowlock_version") == 1);
        CHECK(database.number("select version from rowlock_version") == 0);
        row_session session{database.source(), unhurried()};
        CHECK(kind_of([&] { session.lock_resource("a", row_wait::skip_locked()); }) != errc{});
        row_session elsewhere{database.source().with_tables({.prefix = "nobody_made_"})};
        CHECK(kind_of([&] { elsewhere.lock_resource("a"); }) == errc::schema_outdated);
    }
}

TEST_CASE("an invalid prefix or schema is refused before a connection is opened") {
    for (const auto speaks :
         {sql::dialect::postgresql, sql::dialect::mysql, sql::dialect::sqlite}) {
        int connected = 0;
        const sql::connection_source source{speaks,
                                            [&](sql::deadline) -> std::unique_ptr<sql::connection> {
                                                ++connected;
                                                throw error{errc::database_unreachable, "nobody"};
                                            },
                                            "nowhere"};
        const auto kind = [&](const sql::table_names& names) {
            return kind_of([&] { const row_session session{source.with_tables(names)}; });
        };
        CHECK(kind({.prefix = "x; drop table y --"}) == errc::invalid_options);
        CHECK(kind({.schema = "Mine"}) == errc::invalid_options);
        CHECK(connected == 0);
        CHECK(kind({}) == errc::database_unreachable);  // control
        CHECK(connected == 1);
    }
}

TEST_CASE("statements that would end the transaction are refused and not sent") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        for (const char* text : {"commit", " /* x */ COMMIT", "rollback", "begin", "(-- x\n commit",
                                 "select 1; commit"}) {
            CAPTURE(text);
            row_session session{database.source(), unhurried()};
            session.connection().query(store.take_one("A1"), soon());
            CHECK(kind_of([&] { session.connection().query(text, soon()); }) ==
                  errc::invalid_options);
            CHECK(session.ending() == row_session_ending::rolled_back);
        }
        CHECK(store.stock("A1") == 10);
        row_session session{database.source(), unhurried()};
        session.connection().query("savepoint a", soon());
        session.connection().query(store.take_one("A1"), soon());
        session.connection().query("rollback to savepoint a", soon());
        session.commit();
        CHECK(store.stock("A1") == 10);
    }
}

TEST_CASE("any error ends the session and frees its rows at once") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        row_session session{database.source(), unhurried()};
        REQUIRE(session.lock(store.table(), {"sku"}, {"A1"}));
        session.connection().query(store.take_one("A1"), soon());
        CHECK(kind_of([&] {
                  session.connection().query(
                      "insert into " + store.table() + " values (1, 'A1', 1, 5, 5, 1)", soon());
              }) == errc::unique_violation);
        CHECK(session.ending() == row_session_ending::rolled_back);
        row_session other{database.source(), unhurried()};
        CHECK(other
                  .lock(store.table(), {"sku"}, {"A1"},
                        {.columns = {"stock"}, .wait = row_wait::nowait()})
                  ->integer("stock") == 10);
        CHECK(kind_of([&] { session.connection().query("select 1", soon()); }) ==
              errc::unique_violation);
    }
}

// shows: row-locks
TEST_CASE("after max_hold every call is refused, and everything is rolled back") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        row_session_report told;
        const row_session_options options{.max_hold = 150ms,
                                          .on_end = [&](const auto& end) { told = end; }};
        std::optional<row_session> session;
        // A stall may last longer than max_hold.
        const auto changes_a_row = [&] {
            session.emplace(database.source(), options);
            return kind_of([&] {
                       REQUIRE(session->lock(store.table(), {"sku"}, {"A1"}));
                       session->connection().query(store.take_one("A1"), soon());
                   }) == errc{};
        };
        REQUIRE(support::eventually(changes_a_row));
        REQUIRE(support::eventually([&] { return session->held_for() >= 160ms; }));
        CHECK(kind_of([&] { session->commit(); }) == errc::timed_out);
        CHECK(session->ending() == row_session_ending::timed_out);
        CHECK(told.ending == row_session_ending::timed_out);
        CHECK(told.held >= 150ms);
        CHECK(told.rows_locked == 1);
        CHECK(store.stock("A1") == 10);
    }
}

TEST_CASE("on_end is called once, and what it throws is dropped") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        std::vector<row_session_ending> ends;
        row_session_options options = unhurried();
        options.on_end = [&](const row_session_report& end) {
            ends.push_back(end.ending);
            throw std::runtime_error{"careless"};
        };
        { row_session session{database.source(), options}; }
        row_session{database.source(), options}.commit();
        auto moved = row_session{database.source(), options};
        moved.rollback();
        CHECK(ends == std::vector{row_session_ending::rolled_back, row_session_ending::committed,
                                  row_session_ending::rolled_back});
    }
}

TEST_CASE("retry gives the answer and the number of attempts") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        int calls = 0;
        const auto done =
            retry(database.source(), {.backoff = 1ms}, unhurried(), [&](row_session& session) {
                const auto row =
                    session.lock(store.table(), {"sku"}, {"A1"}, {.columns = {"stock"}});
                session.connection().query(store.take_one("A1"), soon());
                if (++calls < 3) throw error{errc::conflict, "once more"};
                return row->integer("stock") - 1;
            });
        CHECK(done.value == 9);
        CHECK(done.attempts == 3);
        CHECK(store.stock("A1") == 9);

        CHECK_THROWS_AS(retry(database.source(), {}, unhurried(),
                              [&](row_session& session) {
                                  session.connection().query(store.take_one("A1"), soon());
                                  throw std::logic_error{"no"};
                              }),
                        std::logic_error);
        CHECK(store.stock("A1") == 9);
        // An error that the action swallowed prevents the commit, and is rethrown.
        CHECK(kind_of([&] {
                  retry(database.source(), {}, unhurried(), [&](row_session& session) {
                      session.connection().query(store.take_one("A1"), soon());
                      (void)kind_of([&] { session.connection().query("nonsense", soon()); });
                  });
              }) == errc::database_error);
        CHECK(store.stock("A1") == 9);
        // The action may end the session by itself.
        retry(database.source(), {}, unhurried(), [](row_session& session) { session.rollback(); });
        retry(database.source(), {}, unhurried(), [](row_session& session) { session.commit(); });
    }
}
