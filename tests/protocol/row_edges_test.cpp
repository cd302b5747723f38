#include "support/blocked.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/servers.hpp"
#include "support/shop.hpp"
#include <rowlock/error.hpp>
#include <rowlock/row_session.hpp>
#include <rowlock/transaction.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <new>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::at_best;
using support::eventually;
using support::kind_of;
using support::shop;
using support::somebody_waits_for_a_row;
using support::soon;
using support::waiting_for_rows;

// shows: row-locks
TEST_CASE("a row that is replaced by one transaction after the other is found by every waiter") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        const auto replace = [&](row_session& session) {
            const auto row =
                session.lock(store.table(), {"sku"}, {"A1"},
                             {.columns = {"id", "stock"}, .wait = row_wait::bounded(10s)});
            if (!row) return false;
            session.connection().query("delete from " + store.table() + " where sku = 'A1'",
                                       soon());
            session.connection().query("insert into " + store.table() + " values (" +
                                           std::to_string(row->integer("id") + 10) +
                                           ", 'A1', 7, 1, 1, 99)",
                                       soon());
            return true;
        };
        row_session holder{database.source()};
        REQUIRE(replace(holder));
        std::vector<std::future<bool>> waiters;
        for (int i = 0; i < 4; ++i) {
            waiters.push_back(std::async(std::launch::async, [&] {
                row_session session{database.source()};
                const bool found = replace(session);
                session.commit();
                return found;
            }));
        }
        REQUIRE(waiting_for_rows(database, 4));
        holder.commit();
        for (auto& each : waiters) CHECK(each.get());
    }
}

TEST_CASE("retry does not repeat work that committed by itself and then throws") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        shop store{database};
        int calls = 0;
        CHECK(kind_of([&] {
                  retry(database.source(), {.backoff = 1ms}, [&](row_session& session) {
                      ++calls;
                      session.connection().query(store.take_one("A1"), soon());
                      session.commit();
                      throw error{errc::conflict, "of something that came later"};
                  });
              }) == errc::conflict);
        CHECK(calls == 1);
        CHECK(store.stock("A1") == 9);
    }
}

TEST_CASE("lock_all does not deadlock if two sessions name the key's columns in different orders") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        // By (size, colour) row 1 comes first, by (colour, size) it would be row 2.
        database.run("update " + store.table() + " set size = 1, colour = 9 where id = 1");
        database.run("update " + store.table() + " set size = 2, colour = 3 where id = 2");
        row_session blocker{database.source()};
        REQUIRE(blocker.lock(store.table(), {"id"}, {1}));
        const row_session_options patient{.wait = row_wait::bounded(20s)};
        auto one = std::async(std::launch::async, [&] {
            return kind_of([&] {
                row_session session{database.source(), patient};
                (void)session.lock_all(store.table(), {"size", "colour"}, {{1, 9}, {2, 3}});
                session.commit();
            });
        });
        REQUIRE(somebody_waits_for_a_row(database));
        auto two = std::async(std::launch::async, [&] {
            return kind_of([&] {
                row_session session{database.source(), patient};
                (void)session.lock_all(store.table(), {"colour", "size"}, {{9, 1}, {3, 2}});
                session.commit();
            });
        });
        REQUIRE(waiting_for_rows(database, 2));
        blocker.commit();
        CHECK(one.get() == errc{});
        CHECK(two.get() == errc{});
    }
}

TEST_CASE("the wait limit of one lock does not apply to the caller's own statements") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        for (const bool resource : {false, true}) {
            CAPTURE(resource);
            row_session holder{database.source()};
            REQUIRE(holder.lock(store.table(), {"sku"}, {"B2"}));
            std::optional<row_session> session;
            // On MariaDB the limit of a lock is one of its whole statement.
            REQUIRE(eventually([&] {
                session.emplace(database.source(),
                                row_session_options{.wait = row_wait::bounded(10s)});
                return kind_of([&] {
                           if (resource) {
                               session->lock_resource("new", row_wait::nowait());
                           } else {
                               CHECK(session->lock(store.table(), {"sku"}, {"A1"},
                                                   {.wait = row_wait::bounded(10ms)}));
                           }
                       }) == errc{};
            }));
            auto own = std::async(std::launch::async, [&] {
                return kind_of([&] { session->connection().query(store.take_one("B2"), soon()); });
            });
            CHECK(somebody_waits_for_a_row(database));
            CHECK(own.wait_for(100ms) == std::future_status::timeout);
            holder.commit();
            CHECK(own.get() == errc{});
        }
    }
}

// shows: row-locks
TEST_CASE("a statement that ends the transaction and begins another is detected") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        shop store{database};
        for (const char* text :
             {"select $$a$$; commit and chain", "select E'\\''; commit and chain; --'",
              "select 1 /* /* */ ' */; commit and chain; select ' '",
              "select $a$ $$ $a$; commit and chain; select $$ $$"}) {
            CAPTURE(std::string{text});
            row_session session{database.source()};
            session.connection().query(store.take_one("A1"), soon());
            CHECK(kind_of([&] { session.connection().query(text, soon()); }) ==
                  errc::invalid_options);
            CHECK(session.failed());
        }
        CHECK(store.stock("A1") == 10);
    }
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        shop store{database};
        const std::string procedure = database.prefix() + "begin_anew";
        database.run("create procedure " + procedure + "() begin commit; start transaction; end");
        std::vector<std::string> texts{"call " + procedure + "()"};
        if (!support::mysql_alone()) texts.emplace_back("execute immediate 'start transaction'");
        for (const auto& text : texts) {
            CAPTURE(text);
            row_session session{database.source()};
            REQUIRE(session.lock(store.table(), {"sku"}, {"A1"}));
            CHECK(kind_of([&] { session.connection().query(text, soon()); }) ==
                  errc::invalid_options);
            CHECK(session.failed());
        }
        database.run("drop procedure " + procedure);
    }
}

TEST_CASE("a statement that commits as a side effect is refused or detected") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        shop store{database};
        std::vector<const char*> texts{"set password for nobody = password('x')",
                                       "set default role none", "set session `autocommit` = 1",
                                       "check table x"};
        if (support::mysql_alone()) {
            texts.insert(texts.end(),
                         {"lock instance for backup", "unlock instance", "import table from 'x'"});
        } else {
            texts.insert(texts.end(), {"backup stage start", "backup stage end", "backup lock x",
                                       "backup unlock", "create temporary sequence sq",
                                       "set statement max_statement_time = 1 for commit",
                                       "execute immediate 'commit'"});
        }
        for (const char* text : texts) {
            CAPTURE(std::string{text});
            row_session session{database.source()};
            session.connection().query(store.take_one("A1"), soon());
            CHECK(kind_of([&] { session.connection().query(text, soon()); }) ==
                  errc::invalid_options);
            const bool noticed = std::string_view{text}.starts_with("execute");
            CHECK(store.stock("A1") == (noticed ? 9 : 10));
        }
        // Statements without an implicit commit are allowed.
        row_session session{database.source()};
        texts = {"set @a = 1",
                 "do 1",
                 "create temporary table if not exists rt (a int)",
                 "prepare s from 'select 1'",
                 "execute s",
                 "deallocate prepare s"};
        if (!support::mysql_alone()) {
            texts.push_back("set statement max_statement_time = 1 for select 1 from dual");
        }
        for (const char* text : texts) {
            CAPTURE(std::string{text});
            CHECK(kind_of([&] { session.connection().query(text, soon()); }) == errc{});
        }
    }
}

TEST_CASE("a key that finds more than one row is refused") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const std::string table = database.prefix() + "many";
        database.run("create collation " + table +
                     "_ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)");
        database.run("create table " + table + " (k text collate " + table +
                     "_ci, d text, e text, f text collate \"C\")");
        database.run("create unique index on " + table + " (k collate \"C\")");
        database.run("create unique index on " + table + " (d collate \"C\")");
        database.run("create unique index on " + table + " (e collate " + table + "_ci)");
        database.run("insert into " + table + " values ('a', '1', '2', '3'), ('A', '4', '5', '6')");
        const auto kind = [&](const char* column) {
            return kind_of([&] {
                row_session session{database.source()};
                (void)session.lock(table, {column}, {"a"});
            });
        };
        CHECK(kind("k") == errc::unindexed_key);
        CHECK(kind("d") == errc{});
        CHECK(kind("e") == errc{});
        database.run("drop table " + table);
        database.run("drop collation " + table + "_ci");
    }
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::sqlite, support::backend::soci_sqlite) {
        const std::string table = database.prefix() + "many";
        database.run("create table " + table + " (k text collate nocase)");
        database.run("create unique index " + table + "_k on " + table + " (k collate binary)");
        database.run("insert into " + table + " values ('a'), ('A')");
        row_session session{database.source()};
        CHECK(kind_of([&] { (void)session.lock(table, {"k"}, {"a"}); }) == errc::unindexed_key);
        session.rollback();
        database.run("drop table " + table);
    }
}

TEST_CASE("a number too large for its column locks no other row") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::soci_mariadb) {
        shop store{database};
        const std::string table = database.prefix() + "wide";
        database.run("create table " + table + " (k bigint unsigned primary key)");
        database.run("insert into " + table + " values (1), (2), (18446744073709551615)");
        for (const std::string& name : {table, store.table()}) {
            const key_columns column{name == table ? "k" : "id"};
            row_session one{database.source()};
            row_session two{database.source()};
            REQUIRE(one.lock(name, column, {1}));
            row_session three{database.source()};
            std::optional<table_row> row;
            const auto kind = kind_of([&] {
                row = three.lock(name, column, {"18446744073709551616"},
                                 {.wait = row_wait::nowait()});
            });
            CAPTURE(static_cast<int>(kind));
            CHECK_FALSE(row);
            if (name == table) {
                CHECK(kind_of([&] {
                          (void)two.lock(name, column, {"18446744073709551615"},
                                         {.wait = row_wait::nowait()});
                      }) == errc{});
            }
            CHECK(kind_of([&] {
                      (void)two.lock(name, column, {2}, {.wait = row_wait::nowait()});
                  }) == errc{});
        }
        database.run("drop table " + table);
    }
}

TEST_CASE("after USE the cached indexes of another database's table are not used") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        shop store{database};
        const std::string other = database.prefix() + "other";
        database.run("create database " + other);
        database.run("create table " + other + "." + store.table() +
                     " (id integer, sku varchar(40), stock integer, key sku (stock))");
        for (int id : {1, 2, 3}) {
            database.run("insert into " + other + "." + store.table() + " values (" +
                         std::to_string(id) + ", 'X" + std::to_string(id) + "', 1)");
        }
        {
            row_session known{database.source()};
            REQUIRE(known.lock(store.table(), {"sku"}, {"A1"}));
        }
        row_session session{database.source()};
        session.connection().query("use " + other, soon());
        CHECK(kind_of([&] { (void)session.lock(store.table(), {"sku"}, {"X1"}); }) ==
              errc::unindexed_key);
        session.rollback();
        database.run("drop database " + other);
    }
}

TEST_CASE("a row is found by its key after the key's column was altered to another type") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::soci_mariadb) {
        const std::string table = database.prefix() + "altered";
        const auto finds = [&](const char* key) {
            row_session session{database.source(), {.index_cache_ttl = 0ms}};
            return session.lock(table, {"k"}, {key}).has_value();
        };
        for (const auto& [type, key] :
             {std::pair{"varchar(40)", "18446744073709551615"},
              std::pair{"bigint unsigned", "18446744073709551615"}, std::pair{"date", "2020-01-01"},
              std::pair{"time(3)", "00:00:01.5"}}) {
            const std::string now = type;
            CAPTURE(now);
            database.run("create table if not exists " + table + " (k varchar(40) primary key)");
            database.run("delete from " + table);
            database.run("alter table " + table + " modify k " + now);
            database.run("insert into " + table + " values ('" + key + "')");
            CHECK(finds(key));
        }
        database.run("drop table " + table);
    }
}

TEST_CASE("rows of odd tables and types are locked one by one") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        struct odd {
            std::string definition;
            std::string mine;
            std::string theirs;
        };
        const std::string table = database.prefix() + "odd";
        const std::vector<odd> of_mariadb{
            {"(k int primary key) with system versioning", "1", "2"},
            {"(k inet6 primary key)", "::1", "::2"},
            {"(k char(3) collate utf8mb4_nopad_bin primary key)", "1", "2"}};
        std::vector<odd> all{{"(k int primary key) partition by hash (k) partitions 4", "1", "2"},
                             {"(a int, k int as (a) stored, unique (k))", "1", "2"},
                             {"(k float primary key)", "1", "2"},
                             {"(k double primary key)", "1.5", "2"},
                             {"(k year primary key)", "2020", "2021"},
                             {"(k bit(8) primary key)", "97", "98"},
                             {"(k time(3) primary key)", "00:00:01", "00:00:02"},
                             {"(k timestamp(6) primary key)", "2020-01-01 01:00:00", "2020-01-02"},
                             {"(k set('a', 'b') primary key)", "a", "a,b"},
                             {"(k varchar(9) collate utf8mb4_unicode_ci primary key)", "1", "2"},
                             {"(k varchar(9) charset ucs2 primary key)", "1", "2"}};
        if (!support::mysql_alone()) all.insert(all.end(), of_mariadb.begin(), of_mariadb.end());
        for (const odd& each : all) {
            const auto& definition = each.definition;
            CAPTURE(definition);
            database.run("create table " + table + " " + definition);
            const bool number = definition.starts_with("(k bit");
            const std::string into = definition.starts_with("(a") ? "(a)" : "(k)";
            for (const auto& key : {each.mine, each.theirs}) {
                database.run("insert into " + table + into + " values (" +
                             (number ? key : "'" + key + "'") + ")");
            }
            {
                row_session one{database.source(), {.index_cache_ttl = 0ms}};
                row_session two{database.source(), {.index_cache_ttl = 0ms}};
                CHECK(one.lock(table, {"k"}, {each.mine}));
                CHECK(two.lock(table, {"k"}, {each.theirs}, {.wait = row_wait::nowait()}));
            }
            database.run("drop table " + table);
        }
    }
}

TEST_CASE("a row that a policy protects from locking is not taken for a missing one") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        shop store{database};
        const std::string role = database.prefix() + "teller";
        database.run("create role " + role);
        database.run("grant select, update on " + store.table() + " to " + role);
        database.run("alter table " + store.table() + " enable row level security");
        database.run("create policy reads on " + store.table() + " for select using (true)");
        database.run("create policy writes on " + store.table() +
                     " for update using (sku <> 'B2')");
        const auto kind = [&](const char* sku, row_wait wait) {
            return kind_of([&] {
                row_session session{database.source()};
                session.connection().query("set local role " + role, soon());
                (void)session.lock(store.table(), {"sku"}, {sku}, {.wait = wait});
            });
        };
        for (const auto wait : {row_wait::bounded(5s), row_wait::nowait()}) {
            CHECK(kind("A1", wait) == errc{});
            CHECK(kind("Z9", wait) == errc{});
            CHECK(kind("B2", wait) == errc::access_denied);
        }
        database.run("drop policy writes on " + store.table());
        database.run("revoke all on " + store.table() + " from " + role);
        database.run("drop role " + role);
    }
}

TEST_CASE("tables whose names differ in case are kept apart") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const std::string table = database.prefix() + "case";
        database.run("create table " + table + " (a int not null, b int, key k (a))");
        database.run("create table " + table + "S (a int not null, b int)");
        database.run("create table " + table + "s (a int not null, b int, unique k (a))");
        const auto kind = [&](const std::string& name) {
            return kind_of([&] {
                row_session session{database.source(), {.index_cache_ttl = 0ms}};
                (void)session.lock(name, {"a"}, {1});
            });
        };
        CHECK(kind(table) == errc::unindexed_key);
        CHECK(kind(table + "S") == errc::unindexed_key);
        CHECK(kind(table + "s") == errc{});
        database.run("drop table " + table + ", " + table + "s, " + table + "S");
    }
}

namespace {

/// Throws an exception other than rowlock::error after the statement was executed.
class careless final : public sql::connection {
public:
    careless(std::unique_ptr<sql::connection> inner, std::string at)
        : inner_{std::move(inner)}, at_{std::move(at)} {}
    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        return inner_->execute(what, parameters, until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        auto answer = inner_->query(text, until);
        if (text.starts_with(at_)) throw std::bad_alloc{};
        return answer;
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] sql::transaction_state transaction() const noexcept override {
        return inner_->transaction();
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

private:
    std::unique_ptr<sql::connection> inner_;
    std::string at_;
};

}  // namespace

TEST_CASE("an exception of the underlying library leaves no transaction in the pool") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        shop store{database};
        const char* begin = database.speaks() == sql::dialect::mysql ? "start" : "begin";
        for (const std::string& at :
             {std::string{begin}, std::string{"update"}, std::string{"commit"}}) {
            CAPTURE(at);
            std::string failing = at;
            int made = 0;
            const sql::connection_source source{
                database.speaks(),
                [&](sql::deadline until) -> std::unique_ptr<sql::connection> {
                    ++made;
                    return std::make_unique<careless>(database.source().connect(until),
                                                      std::exchange(failing, "nothing"));
                },
                "careless"};
            std::optional<row_session_ending> ended;
            row_session_options options;
            options.on_end = [&](const row_session_report& end) { ended = end.ending; };
            try {
                row_session session{source, options};
                session.connection().query(store.take_one("A1"), soon());
                session.commit();
                FAIL("no exception");
            } catch (const std::bad_alloc&) {
            }
            if (at == "commit") CHECK(ended == row_session_ending::lost);
            row_session next{source};
            CHECK(next.lock(store.table(), {"sku"}, {"A1"}, {.wait = row_wait::nowait()}));
            next.rollback();
        }
        CHECK(store.stock("A1") == 9);  // the commit took effect
    }
}

TEST_CASE("a prepared statement survives a change of a column's type") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS, support::backend::soci_postgresql,
                             support::backend::soci_mariadb) {
        shop store{database};
        const auto lock = [&](const char* column, sql::value value) {
            std::optional<table_row> row;
            retry(database.source(), {.backoff = 1ms}, [&](row_session& session) {
                row = session.lock(store.table(), {column}, {value}, {.columns = {"shelf"}});
            });
            return row.has_value();
        };
        REQUIRE(lock("id", 1));
        REQUIRE(lock("sku", "A1"));
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        const std::string alter =
            "alter table " + store.table() + (postgresql ? " alter column " : " modify ");
        const std::string to = postgresql ? " type " : " ";
        database.run(alter + "shelf" + to + "varchar(20)");
        CHECK(lock("id", 1));
        database.run(alter + "id" + to + "bigint" + (postgresql ? "" : " not null"));
        database.run("insert into " + store.table() + " values (99999999999, 'D4', '9', 9, 9, 9)");
        if (postgresql) {  // prepared for a smaller type: fails once, and is prepared again
            CHECK(kind_of([&] { (void)lock("id", 99999999999); }) == errc::invalid_options);
        }
        CHECK(lock("id", 99999999999));
        CHECK(kind_of([&] { (void)lock("id", "nonsense"); }) == errc::invalid_options);
    }
}

TEST_CASE("skip_locked waits for a locked table no longer than the statement timeout") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS, support::backend::soci_mariadb) {
        shop store{database};
        const auto altering = database.source().connect(soon());
        const bool postgresql = database.speaks() == sql::dialect::postgresql;
        if (postgresql) altering->query("begin", soon());
        altering->query(
            "lock table" + (postgresql ? " " + store.table() + " in access exclusive mode"
                                       : "s " + store.table() + " write"),
            soon());
        // On a machine that stalls even the beginning of a session may take longer.
        const auto time_until_refused = [&]() -> std::chrono::steady_clock::duration {
            auto start = std::chrono::steady_clock::time_point::min();
            const auto kind = kind_of([&] {
                row_session session{database.source(),
                                    {.wait = row_wait::bounded(300ms), .statement_timeout = 300ms}};
                start = std::chrono::steady_clock::now();
                (void)session.lock(store.table(), {"sku"}, {"A1"},
                                   {.wait = row_wait::skip_locked()});
            });
            const bool began = start > std::chrono::steady_clock::time_point::min();
            if (!began || kind != errc::timed_out) return 1h;
            return std::chrono::steady_clock::now() - start;
        };
        CHECK(at_best(2s, time_until_refused) < 2s);
        altering->query(postgresql ? "rollback" : "unlock tables", soon());
    }
}

TEST_CASE("a failed lock_row leaves the caller's settings unchanged on MariaDB and MySQL") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::mariadb, support::backend::soci_mariadb) {
        shop store{database};
        row_session holder{database.source()};
        REQUIRE(holder.lock(store.table(), {"sku"}, {"A1"}));
        const auto caller = database.connect();
        const bool mysql = support::mysql_alone();
        const std::string limit = mysql ? "max_execution_time" : "max_statement_time";
        caller->query("set session " + limit + " = 77, innodb_lock_wait_timeout = 33", soon());
        const std::string asked = "select concat_ws(' ', @@" + limit +
                                  ", @@innodb_lock_wait_timeout, @@autocommit, " +
                                  (mysql ? "@@transaction_isolation, @@wait_timeout)"
                                         : "@@tx_isolation, @@idle_transaction_timeout)");
        const auto settings = [&] { return std::string{caller->query(asked, soon()).text(0, 0)}; };
        const auto before = settings();
        caller->query("begin", soon());
        for (const auto wait :
             {row_wait::bounded(50ms), row_wait::nowait(), row_wait::bounded(50ms)}) {
            CHECK(kind_of([&] {
                      (void)lock_row(*caller, store.table(), {"sku"}, {"A1"}, {.wait = wait});
                  }) == errc::timed_out);
            CHECK(settings() == before);
        }
        CHECK(lock_row(*caller, store.table(), {"sku"}, {"B2"}));
        caller->query("rollback", soon());
        CHECK(settings() == before);
    }
}

TEST_CASE(
    "a server process that is killed during its commit is an unknown outcome, which is not "
    "repeated") {
    ROWLOCK_FOR_EACH_BACKEND(database, support::backend::postgresql,
                             support::backend::soci_postgresql) {
        shop store{database};
        const std::string function = database.prefix() + "wait";
        const std::string key = std::to_string(getpid());
        database.run("create function " + function +
                     "() returns trigger language plpgsql as "
                     "$$ begin perform pg_advisory_xact_lock(" +
                     key + "); return null; end $$");
        database.run("create constraint trigger waits after update on " + store.table() +
                     " deferrable initially deferred for each row execute function " + function +
                     "()");
        database.run("select pg_advisory_lock(" + key + ")");
        std::atomic<int> calls{0};
        std::atomic<std::int64_t> process{0};
        auto kind = std::async(std::launch::async, [&] {
            return kind_of([&] {
                const row_session_options patient{.wait = row_wait::bounded(20s),
                                                  .statement_timeout = 20s};
                retry(database.source(), {}, patient, [&](row_session& session) {
                    ++calls;
                    session.connection().query(store.take_one("A1"), soon());
                    process =
                        session.connection().query("select pg_backend_pid()", soon()).integer(0, 0);
                });
            });
        });
        CHECK(eventually([&] {
            return database.number(
                       "select count(*) from pg_locks where locktype = 'advisory' and "
                       "not granted and pid = " +
                       std::to_string(process)) == 1;
        }));
        database.run("select pg_terminate_backend(" + std::to_string(process) + ")");
        CHECK(kind.get() == errc::outcome_unknown);
        CHECK(calls == 1);
        database.run("select pg_advisory_unlock(" + key + ")");
        store.drop("trigger waits on " + store.table());
        store.drop("function " + function + "()");
    }
}

TEST_CASE("many threads share few sessions") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        shop store{database};
        database.run("update " + store.table() + " set stock = 1000");
        std::atomic<int> open{0};
        std::atomic<int> most{0};
        std::atomic<int> sold{0};
        {
            const sql::connection_source& source = database.source();
            std::vector<std::jthread> threads;
            for (int t = 0; t < 12; ++t) {
                threads.emplace_back([&, t, mine = source] {
                    for (int i = 0; i < 6; ++i) {
                        row_session_options options{.max_sessions = 3, .checkout_timeout = 60s};
                        options.wait = row_wait::bounded(30s);
                        options.statement_timeout = 20s;
                        const retry_policy persistent{
                            .attempts = 100, .backoff = 1ms, .total = 60s};
                        bool fail = true;
                        retry(mine, persistent, options, [&](row_session& session) {
                            const int now = ++open;
                            for (int seen = most;
                                 seen < now && !most.compare_exchange_weak(seen, now);) {
                            }
                            struct leave {
                                std::atomic<int>& count;
                                ~leave() { --count; }
                            } const leaving{open};
                            const auto row = session.lock(store.table(), {"sku"}, {"A1"},
                                                          {.columns = {"stock"}});
                            session.connection().query(
                                "update " + store.table() + " set stock = " +
                                    std::to_string(row->integer("stock") - 1) + " where sku = 'A1'",
                                soon());
                            if ((t + i) % 5 == 0 && std::exchange(fail, false)) {
                                throw error{errc::conflict, "once more"};
                            }
                        });
                        ++sold;
                    }
                });
            }
        }
        CHECK(sold == 72);
        CHECK(most <= 3);
        CHECK(store.stock("A1") == 1000 - 72);
    }
}
