#include "support/blocked.hpp"
#include "support/child.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/processlist.hpp"
#include "support/servers.hpp"
#include "support/shop.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/error.hpp>
#include <rowlock/row_session.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <future>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;
using support::shop;
using support::somebody_waits_for_a_row;
using support::soon;
using support::waiting_for_rows;

namespace {

bool is_postgresql(const support::lock_database& database) {
    return database.speaks() == sql::dialect::postgresql;
}

std::int64_t server_process(row_session& session) {
    auto& db = session.connection();
    const bool postgresql = db.speaks() == sql::dialect::postgresql;
    return db.query(postgresql ? "select pg_backend_pid()" : "select connection_id()", soon())
        .integer(0, 0);
}

void kill(support::lock_database& database, std::int64_t process) {
    const auto id = std::to_string(process);
    database.run(is_postgresql(database) ? "select pg_terminate_backend(" + id + ")"
                                         : "kill " + id);
}

bool is_gone(support::lock_database& database, std::int64_t process) {
    return eventually([&] {
        if (!is_postgresql(database)) {
            return support::processes(database.admin(),
                                      [&](const auto& one) { return one.id == process; })
                .empty();
        }
        return database.run("select 1 from pg_stat_activity where pid = " + std::to_string(process))
            .empty();
    });
}

const row_session_options patient{.wait = row_wait::bounded(10s)};

}  // namespace

// shows: row-locks
TEST_CASE("a waiter gets a row after its holder's commit, and reads what the holder wrote") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        row_session holder{database.source()};
        REQUIRE(holder.lock(store.table(), {"sku"}, {"A1"}));
        auto waiter = std::async(std::launch::async, [&] {
            row_session session{database.source(), patient};
            const auto row = session.lock(store.table(), {"sku"}, {"A1"}, {.columns = {"stock"}});
            session.connection().query(store.take_one("A1"), soon());
            session.commit();
            return row->integer("stock");
        });
        REQUIRE(somebody_waits_for_a_row(database));
        holder.connection().query(store.take_one("A1"), soon());
        holder.commit();
        CHECK(waiter.get() == 9);
        CHECK(store.stock("A1") == 8);
    }
}

// shows: row-locks
TEST_CASE("control: without the lock two sales read the same stock") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        row_session one{database.source()};
        row_session two{database.source()};
        const std::string read = "select stock from " + store.table() + " where sku = 'A1'";
        CHECK(one.connection().query(read, soon()).integer(0, 0) == 10);
        CHECK(two.connection().query(read, soon()).integer(0, 0) == 10);
    }
}

TEST_CASE(
    "of two sessions that lock in opposite orders one is a deadlock victim, and its retry "
    "succeeds") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        std::barrier both_have_one{2};
        std::atomic<int> victims{0};
        const auto work = [&](const char* first, const char* second) {
            bool once = true;
            return retry(database.source(), {}, patient, [&](row_session& session) {
                try {
                    (void)session.lock(store.table(), {"sku"}, {first});
                    if (std::exchange(once, false)) both_have_one.arrive_and_wait();
                    (void)session.lock(store.table(), {"sku"}, {second});
                } catch (const error& failure) {
                    CHECK(failure.kind() == errc::deadlock);
                    CHECK(session.ending() == row_session_ending::rolled_back);
                    ++victims;
                    throw;
                }
                session.connection().query(store.take_one(first), soon());
            });
        };
        auto other = std::async(std::launch::async, [&] { return work("B2", "A1").attempts; });
        int attempts = work("A1", "B2").attempts;
        attempts += other.get();
        // A victim that retries before the server has scheduled the other session can take its
        // first row again and end as a victim once more.
        CHECK(victims >= 1);
        CHECK(attempts == 2 + victims);
        CHECK(store.stock("A1") == 9);
        CHECK(store.stock("B2") == 19);
    }
}

TEST_CASE("lock_all in opposite orders does not deadlock where lock() in those orders does") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        for (const bool in_canonical_order : {true, false}) {
            CAPTURE(in_canonical_order);
            row_session blocker{database.source()};
            REQUIRE(blocker.lock(store.table(), {"sku"}, {"A1"}));
            const auto take = [&](const char* first, const char* second) {
                return kind_of([&] {
                    row_session session{database.source(), patient};
                    if (in_canonical_order) {
                        (void)session.lock_all(store.table(), {"sku"}, {{first}, {second}});
                    } else {
                        (void)session.lock(store.table(), {"sku"}, {first});
                        (void)session.lock(store.table(), {"sku"}, {second});
                    }
                    session.commit();
                });
            };
            auto one = std::async(std::launch::async, take, "A1", "B2");
            REQUIRE(somebody_waits_for_a_row(database));
            auto two = std::async(std::launch::async, take, "B2", "A1");
            REQUIRE(waiting_for_rows(database, 2));
            blocker.commit();
            const std::array kinds{one.get(), two.get()};
            CHECK(std::ranges::count(kinds, errc::deadlock) == (in_canonical_order ? 0 : 1));
            CHECK(std::ranges::count(kinds, errc{}) == (in_canonical_order ? 2 : 1));
        }
    }
}

TEST_CASE("a row that was deleted and inserted again during a wait for it is found") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        const auto replace = [&](row_session& holder) {
            holder.connection().query("delete from " + store.table() + " where sku = 'A1'", soon());
            holder.connection().query(
                "insert into " + store.table() + " values (11, 'A1', 7, 1, 1, 99)", soon());
            holder.commit();
        };
        row_session holder{database.source()};
        REQUIRE(holder.lock(store.table(), {"sku"}, {"A1"}));
        auto waiter = std::async(std::launch::async, [&] {
            row_session session{database.source(), patient};
            const auto row = session.lock(store.table(), {"sku"}, {"A1"}, {.columns = {"stock"}});
            return row ? row->integer("stock") : 0;
        });
        REQUIRE(somebody_waits_for_a_row(database));
        replace(holder);
        CHECK(waiter.get() == 99);

        if (!is_postgresql(database)) continue;
        // Control: a plain FOR UPDATE does not find the row.
        database.run("update " + store.table() + " set id = 1 where sku = 'A1'");
        row_session again{database.source()};
        REQUIRE(again.lock(store.table(), {"sku"}, {"A1"}));
        auto plain = std::async(std::launch::async, [&] {
            const auto db = database.connect();
            return db
                ->query("select stock from " + store.table() + " where sku = 'A1' for update",
                        soon())
                .rows();
        });
        REQUIRE(somebody_waits_for_a_row(database));
        replace(again);
        CHECK(plain.get() == 0);
    }
}

// shows: row-locks
TEST_CASE("in a table of three rows two sessions lock different rows") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        database.run("update " + store.table() + " set sku = '42' where id = 3");
        for (const auto& key : {row_key{"A1"}, row_key{42}}) {
            row_session one{database.source()};
            row_session two{database.source()};
            REQUIRE(one.lock(store.table(), {"sku"}, key));
            CHECK(two.lock(store.table(), {"sku"}, {"B2"}, {.wait = row_wait::nowait()}));
        }
        if (is_postgresql(database)) continue;
        // Controls: InnoDB locks all rows that it reads, without an index or by one that does not
        // fit.
        for (const char* where : {"shelf = 8", "sku = 42"}) {
            const auto careless = database.connect();
            careless->query("set session transaction isolation level repeatable read", soon());
            careless->query("begin", soon());
            careless->query("select * from " + store.table() + " where " + where + " for update",
                            soon());
            row_session two{database.source()};
            CHECK(kind_of([&] {
                      (void)two.lock(store.table(), {"sku"}, {"B2"}, {.wait = row_wait::nowait()});
                  }) == errc::timed_out);
        }
    }
}

TEST_CASE("a text column of another character set is looked up by its index too") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const std::string table = database.prefix() + "latin";
        database.run("create table " + table +
                     " (k varchar(20) character set latin1 collate latin1_bin primary key)");
        database.run("insert into " + table + " values ('a'), ('?'), ('\xc3\xa9')");
        row_session one{database.source()};
        row_session two{database.source()};
        CHECK(one.lock(table, {"k"}, {"\xc3\xa9"}));
        CHECK(two.lock(table, {"k"}, {"a"}, {.wait = row_wait::nowait()}));
        CHECK_FALSE(two.lock(table, {"k"}, {"A"}));
        CHECK_FALSE(two.lock(table, {"k"},
                             {"\xe6\x97\xa5"}));  // not in the character set, and not the row `?`
        one.rollback();
        two.rollback();
        database.run("drop table " + table);
    }
}

TEST_CASE("a dropped index is detected") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        const auto lock = [&](std::chrono::milliseconds trust) {
            return kind_of([&] {
                row_session session{database.source(), {.index_cache_ttl = trust}};
                (void)session.lock(store.table(), {"sku"}, {"A1"});
            });
        };
        CHECK(lock(1min) == errc{});
        if (is_postgresql(database)) {
            database.run("alter table " + store.table() + " drop constraint " + store.table() +
                         "_sku_key");
            CHECK(lock(1min) == errc{});
            CHECK(lock(std::chrono::milliseconds::max()) == errc{});
            CHECK(lock(0ms) == errc::unindexed_key);
        } else {
            database.run("alter table " + store.table() + " drop index sku");
            CHECK(lock(1min) == errc::unindexed_key);
        }
    }
}

TEST_CASE("indexes that do not make a key unique are not taken for ones that do") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        const std::string table = database.prefix() + "odd";
        database.run("create table " + table + " (a int, b int, c int, d int, e text)");
        database.run("create unique index on " + table + " (a) where a > 0");
        database.run("create unique index on " + table + " (b) include (c)");
        database.run("create unique index on " + table + " (lower(e))");
        const auto kind = [&](const char* column) {
            return kind_of([&] {
                row_session session{database.source()};
                (void)session.lock(table, {column}, {1});
            });
        };
        CHECK(kind("a") == errc::unindexed_key);
        CHECK(kind("b") == errc{});
        CHECK(kind("c") == errc::unindexed_key);
        CHECK(kind("e") == errc::unindexed_key);
        database.run("create table " + table + "_child () inherits (" + table + ")");
        CHECK(kind_of([&] {
                  row_session session{database.source(), {.index_cache_ttl = 0ms}};
                  (void)session.lock(table, {"b"}, {1});
              }) == errc::unsupported);
        database.run("drop table " + table + " cascade");
    }
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const std::string table = database.prefix() + "odd";
        database.run("create table " + table + " (a varchar(40), b int, unique (a(3)))");
        database.run("create table " + table + "_m (a int primary key) engine = MyISAM");
        CHECK(kind_of([&] {
                  row_session session{database.source()};
                  (void)session.lock(table, {"a"}, {"x"});
              }) == errc::unindexed_key);
        CHECK(kind_of([&] {
                  row_session session{database.source()};
                  (void)session.lock(table + "_m", {"a"}, {1});
              }) == errc::unsupported);
        database.run("drop table " + table + ", " + table + "_m");
    }
}

// shows: row-locks
TEST_CASE(
    "the server ends a session that sits idle for max_hold: its row is free, its error typed") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        row_session_report told;
        std::optional<row_session> stopped;
        // On a machine that stalls it may be over before it sits idle: then once more.
        REQUIRE(eventually([&] {
            return kind_of([&] {
                       row_session_options brief{.max_hold = 1s};
                       brief.on_end = [&](const row_session_report& end) { told = end; };
                       stopped.emplace(database.source(), brief);
                       CHECK(stopped->lock(store.table(), {"sku"}, {"A1"}));
                       stopped->connection().query(store.take_one("A1"), soon());
                   }) == errc{};
        }));
        row_session next{database.source(), patient};
        const auto row = next.lock(store.table(), {"sku"}, {"A1"}, {.columns = {"stock"}});
        CHECK(row->integer("stock") == 10);
        CHECK(next.held_for() < 8s);
        CHECK(kind_of([&] { stopped->commit(); }) == errc::timed_out);
        CHECK(told.ending == row_session_ending::timed_out);
    }
}

// shows: row-locks
TEST_CASE("a session whose connection was killed is lost, and retry repeats it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        row_session_options options;
        std::vector<row_session_ending> ends;
        options.on_end = [&](const row_session_report& end) { ends.push_back(end.ending); };
        bool once = true;
        const auto done =
            retry(database.source(), {.backoff = 1ms}, options, [&](row_session& session) {
                session.connection().query(store.take_one("A1"), soon());
                if (std::exchange(once, false)) {
                    const auto process = server_process(session);
                    kill(database, process);
                    REQUIRE(is_gone(database, process));
                    const auto kind =
                        kind_of([&] { (void)session.lock(store.table(), {"sku"}, {"A1"}); });
                    CHECK(kind == errc::database_unreachable);
                }
            });
        CHECK(done.attempts == 2);
        CHECK(ends == std::vector{row_session_ending::lost, row_session_ending::committed});
        CHECK(store.stock("A1") == 9);
    }
}

TEST_CASE("a connection that died in the pool is replaced without an error") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        std::int64_t process = 0;
        {
            row_session session{database.source()};
            process = server_process(session);
        }
        kill(database, process);
        REQUIRE(is_gone(database, process));
        row_session session{database.source()};
        CHECK(session.lock(store.table(), {"sku"}, {"A1"}));
        CHECK(server_process(session) != process);
    }
}

// shows: row-locks
TEST_CASE("a lost reply to the commit is an unknown outcome, and is not repeated") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        shop store{database};
        support::interception network;
        network.after([](std::string_view name) {
            if (name == "commit") support::interception::lose_reply();
        });
        const auto source = network.wrap(database.source());
        int calls = 0;
        std::optional<row_session_ending> ended;
        row_session_options options;
        options.on_end = [&](const row_session_report& end) { ended = end.ending; };
        CHECK(kind_of([&] {
                  retry(source, {}, options, [&](row_session& session) {
                      ++calls;
                      session.connection().query(store.take_one("A1"), soon());
                  });
              }) == errc::outcome_unknown);
        CHECK(calls == 1);
        CHECK(ended == row_session_ending::lost);
        CHECK(store.stock("A1") == 9);
    }
}

TEST_CASE("a serialization failure at the commit is retried") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        shop store{database};
        row_session_options options{.isolation_level = isolation::serializable};
        const std::string sum = "select sum(stock) from " + store.table();
        bool once = true;
        const auto done =
            retry(database.source(), {.backoff = 1ms}, options, [&](row_session& session) {
                const auto before = session.connection().query(sum, soon()).integer(0, 0);
                session.connection().query(store.take_one("A1"), soon());
                if (std::exchange(once, false)) {
                    row_session other{database.source(), options};
                    other.connection().query(sum, soon());
                    other.connection().query(store.take_one("B2"), soon());
                    other.commit();
                    CHECK(kind_of([&] { session.commit(); }) == errc::conflict);
                    CHECK(session.ending() == row_session_ending::rolled_back);
                }
                return before;
            });
        CHECK(done.attempts == 2);
        CHECK(done.value == 59);
        CHECK(store.stock("A1") == 9);
    }
}

// shows: newer-rows
TEST_CASE("at repeatable read a row that changed behind the snapshot is a conflict") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        row_session session{database.source(), {.isolation_level = isolation::repeatable_read}};
        // MariaDB before 11.6 and MySQL lock the current version of the row.
        if (!is_postgresql(database) && !support::isolates_snapshots(session.connection()))
            continue;
        session.connection().query("select count(*) from " + store.table(), soon());
        database.run(store.take_one("A1"));
        CHECK(kind_of([&] { (void)session.lock(store.table(), {"sku"}, {"A1"}); }) ==
              errc::conflict);
    }
}

TEST_CASE("at most max_sessions exist, and the end of one lets a waiting one begin") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        row_session_options one{.max_sessions = 1, .checkout_timeout = 30ms};
        std::optional<row_session> first{std::in_place, database.source(), one};
        CHECK(kind_of([&] {
                  const row_session of_a_copy{sql::connection_source{database.source()}, one};
              }) == errc::timed_out);
        one.checkout_timeout = 10s;
        row_session_report told;
        one.on_end = [&](const row_session_report& end) { told = end; };
        // On a busy machine the second thread may start late, and wait for less time than the first
        // holds.
        for (int attempt = 0; attempt < 10 && told.checkout_wait < 40ms; ++attempt) {
            if (!first) first.emplace(database.source(), one);
            auto waiter = std::async(std::launch::async, [&] {
                row_session second{sql::connection_source{database.source()}, one};
                second.commit();
            });
            CHECK(waiter.wait_for(50ms) == std::future_status::timeout);
            first.reset();
            waiter.get();
        }
        CHECK(told.checkout_wait >= 40ms);
    }
}

TEST_CASE("a pooled connection is reused without the former caller's settings") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        const bool postgresql = is_postgresql(database);
        std::int64_t before = 0;
        {
            row_session session{database.source(),
                                {.isolation_level = isolation::serializable, .max_hold = 7s}};
            before = server_process(session);
            session.commit();
        }
        {
            row_session session{database.source()};
            CHECK(server_process(session) == before);
            const auto level = session.connection().query(
                postgresql ? "show transaction_isolation"
                : support::mysql_alone()
                    ? "select lower(@@session.transaction_isolation)"
                    : "select lower(variable_value) from information_schema.session_variables "
                      "where variable_name = 'tx_isolation'",
                soon());
            CHECK(std::string{level.text(0, 0)} ==
                  (postgresql ? "read committed" : "read-committed"));
            session.connection().query(postgresql ? "set application_name = 'left'"
                                                  : "set session sort_buffer_size = 65536",
                                       soon());
            session.commit();
        }
        row_session session{database.source()};
        CHECK(server_process(session) != before);
    }
}

TEST_CASE("PostgreSQL keeps no setting outside the transaction") {
    if (support::lock_database database{support::backend::postgresql}; database.there()) {
        shop store{database};
        // The connection that a pooler would hand to another client afterwards.
        const auto pooled = postgresql::open(*support::url_of(support::server::postgresql),
                                             {.transaction_pooler = true});
        sql::connection* left = nullptr;
        const sql::connection_source source{sql::dialect::postgresql,
                                            [&](sql::deadline until) {
                                                auto made = pooled.connect(until);
                                                left = made.get();
                                                return made;
                                            },
                                            "a pooler"};
        const std::string settings =
            "select string_agg(current_setting(name), ' ' order by name) from pg_settings "
            "where name in ('lock_timeout', 'statement_timeout', 'default_transaction_isolation', "
            "'idle_in_transaction_session_timeout')";
        std::string within;
        {
            row_session session{source};
            CHECK_FALSE(session.connection().keeps_session_state());
            REQUIRE(session.lock(store.table(), {"sku"}, {"A1"}));
            within = session.connection().query(settings, soon()).text(0, 0);
            session.commit();
        }
        const auto untouched = pooled.connect(soon())->query(settings, soon());
        CHECK(within != untouched.text(0, 0));
        CHECK(left->query(settings, soon()).text(0, 0) == untouched.text(0, 0));
    }
}

TEST_CASE(
    "of two sessions that create the same resource one waits, and creates it after a rollback") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        for (const bool commits : {false, true}) {
            row_session first{database.source(), patient};
            first.lock_resource("new");
            auto second = std::async(std::launch::async, [&] {
                row_session session{database.source(), patient};
                session.lock_resource("new");
                return session.ending().has_value();
            });
            REQUIRE(somebody_waits_for_a_row(database));
            commits ? first.commit() : first.rollback();
            CHECK_FALSE(second.get());
        }
        CHECK(database.number("select count(*) from rowlock_version") == 1);
    }
}

TEST_CASE(
    "a forked child can use neither the session nor its source's pool, and closes no connection") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        { row_session idle{database.source()}; }
        auto session = std::make_unique<row_session>(database.source());
        REQUIRE(session->lock(store.table(), {"sku"}, {"A1"}));
        CHECK(support::is_true_in_child([&] {
            const bool refused = kind_of([&] { session->commit(); }) == errc::wrong_process &&
                                 kind_of([&] { const row_session another{database.source()}; }) ==
                                     errc::wrong_process;
            session.reset();
            return refused;
        }));
        session->connection().query(store.take_one("A1"), soon());
        session->commit();
        CHECK(store.stock("A1") == 9);
    }
}

namespace {

/// A connection to a server whose every plan claims to scan the table.
class scanning_server final : public sql::connection {
public:
    explicit scanning_server(std::unique_ptr<sql::connection> inner) : inner_{std::move(inner)} {}
    [[nodiscard]] sql::dialect speaks() const noexcept override { return inner_->speaks(); }
    sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                        sql::deadline until) override {
        if (what.text().find("explain format=traditional") != std::string::npos) {
            sql::result plan{12};
            for (const char* cell :
                 {"1", "SIMPLE", "t", "", "ALL", "sku", "", "", "", "3", "100", "Using where"}) {
                plan.append_text(cell);
            }
            return plan;
        }
        return inner_->execute(what, parameters, until);
    }
    sql::result query(std::string_view text, sql::deadline until) override {
        return inner_->query(text, until);
    }
    [[nodiscard]] bool alive() const noexcept override { return inner_->alive(); }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override {
        return inner_->round_trips();
    }

private:
    std::unique_ptr<sql::connection> inner_;
};

}  // namespace

TEST_CASE(
    "a bounded wait for a row lasts as long as requested, with any lock timeout of the server") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        shop store{database};
        row_session holder{database.source()};
        REQUIRE(holder.lock(store.table(), {"sku"}, {"A1"}));
        for (const auto wait : {250ms, 1500ms}) {
            row_session session{database.source()};
            if (!is_postgresql(database)) {
                session.connection().query("set session innodb_lock_wait_timeout = 1", soon());
            }
            const auto start = std::chrono::steady_clock::now();
            CHECK(kind_of([&] {
                      (void)session.lock(store.table(), {"sku"}, {"A1"},
                                         {.wait = row_wait::bounded(wait)});
                  }) == errc::timed_out);
            const auto took = std::chrono::steady_clock::now() - start;
            CHECK(took >= wait);
            CHECK(took < wait + 15s);
        }
    }
}

TEST_CASE("a plan that scans the table despite its index is refused") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        shop store{database};
        const sql::connection_source source{
            sql::dialect::mysql,
            [&](sql::deadline until) {
                return std::make_unique<scanning_server>(database.source().connect(until));
            },
            "MySQL"};
        row_session session{source};
        CHECK(kind_of([&] { (void)session.lock(store.table(), {"sku"}, {"A1"}); }) ==
              errc::unindexed_key);
    }
}

TEST_CASE("keys of every type that may be unique find their row by its index") {
    if (support::lock_database database{support::backend::mariadb}; database.there()) {
        const std::string table = database.prefix() + "types";
        const std::array<std::array<const char*, 3>, 7> types{
            {{"date", "2020-01-01", "2020-01-02"},
             {"decimal(10,2)", "1.50", "2.50"},
             {"varbinary(9)", "7", "8"},
             {"bigint unsigned", "18446744073709551615", "8"},
             {"datetime(6)", "2020-01-01", "2021-01-01"},
             {"enum('x','y')", "x", "y"},
             {"char(3) charset latin1", "x", "y"}}};
        for (const auto& [name, mine, theirs] : types) {
            const std::string type = name;
            CAPTURE(type);
            database.run("create table " + table + " (k " + type + " primary key)");
            database.run("insert into " + table + " values ('" + mine + "'), ('" + theirs + "')");
            {
                row_session one{database.source(), {.index_cache_ttl = 0ms}};
                row_session two{database.source(), {.index_cache_ttl = 0ms}};
                CHECK(one.lock(table, {"k"}, {mine}));
                CHECK(two.lock(table, {"k"}, {theirs}, {.wait = row_wait::nowait()}));
            }
            database.run("drop table " + table);
        }
    }
}

// shows: row-locks
TEST_CASE("on SQLite the first lock waits for the file, and a session holds it") {
    if (support::lock_database database{support::backend::sqlite}; database.there()) {
        shop store{database};
        std::optional<row_session> holder{std::in_place, database.source()};
        row_session other{database.source(), patient};  // the beginning locks nothing
        REQUIRE(holder->lock(store.table(), {"sku"}, {"A1"}));
        auto waiter = std::async(std::launch::async, [&] {
            return other.lock(store.table(), {"sku"}, {"B2"}).has_value();
        });
        CHECK(waiter.wait_for(50ms) == std::future_status::timeout);
        holder->commit();
        CHECK(waiter.get());
    }
}
