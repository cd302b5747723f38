// The promises of the SOCI driver beyond the contract of every driver.
#include "driver/soci_fixtures.hpp"
#include "driver/sqlite_path.hpp"
#include "driver/tcp_limits.hpp"
#include "support/child.hpp"
#include "support/failure.hpp"
#include "support/server_address.hpp"
#include "support/tcp_relay.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/soci.hpp>
#include <rowlock/error.hpp>

#include <doctest/doctest.h>
#include <soci/soci.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::errc;
using rowlock::sql::connection;
using rowlock::sql::result;
using rowlock::sql::statement;
using rowlock::sql::value;
using clock = std::chrono::steady_clock;
using support::kind_of;
using support::soon;

result run(connection& on, const std::string& text, std::vector<value> parameters = {}) {
    return on.execute(statement{text}, parameters, soon());
}

std::string pairs(const server_address& server, const std::string& database_key) {
    return "host=" + server.host + " port=" + std::to_string(server.port) + " user=" + server.user +
           " password='" + server.password + "' " + database_key + "=" + server.database;
}

std::string mysql_pairs() {
    return pairs(address_of(support::server::mariadb), "db");
}

std::string postgresql_pairs() {
    return pairs(address_of(support::server::postgresql), "dbname");
}

}  // namespace

// --- opening ---

TEST_CASE("SOCI connection strings that would break a promise are refused") {
    const auto refusal = [](const std::string& backend, const std::string& text) {
        return kind_of([&] { (void)rowlock::soci::open(backend, text); });
    };
    CHECK(refusal("odbc", "x") == errc::invalid_url);
    CHECK(refusal("", "x") == errc::invalid_url);
    CHECK(refusal("sqlite3", ":memory:") == errc::invalid_url);
    CHECK(refusal("sqlite3", "db=:memory:") == errc::invalid_url);
    CHECK(refusal("sqlite3", "") == errc::invalid_url);
    CHECK(refusal("mysql", "host=h reconnect=1 db=d") == errc::invalid_url);
    CHECK(refusal("mysql", "host=h  reconnect = 1") == errc::invalid_url);
    CHECK_NOTHROW((void)rowlock::soci::open("mysql", "password='x reconnect=1' host=h"));
}

TEST_CASE("names of tables are not part of a SOCI connection string: the source takes them") {
    const auto is_refused = [](const std::string& backend, const std::string& text) {
        try {
            (void)rowlock::soci::open(backend, text);
        } catch (const rowlock::error& refused) {
            CHECK(std::string{refused.what()}.find("with_tables") != std::string::npos);
            return refused.kind() == errc::invalid_url;
        }
        return false;
    };
    CHECK(is_refused("mysql", "host=h rowlock_prefix=shop_"));
    CHECK(is_refused("postgresql", "rowlock_schema = shop dbname=d"));
    CHECK(is_refused("postgresql", "postgresql://h/d?rowlock_prefix=shop_"));
    CHECK(is_refused("postgresql", "postgresql://h/d?sslmode=require&rowlock_schema=shop"));
    CHECK(is_refused("sqlite3", "dbname=/tmp/x.db rowlock_prefix=shop_"));
    CHECK(is_refused("sqlite3", "/tmp/x.db?rowlock_prefix=shop_"));
    CHECK_FALSE(is_refused("mysql", "password='x rowlock_prefix=shop_' host=h"));
    CHECK_FALSE(is_refused("sqlite3", "dbname=/tmp/rowlock_prefix.db"));
    const auto source = rowlock::soci::open("postgresql", "dbname=d")
                            .with_tables({.schema = "locks", .prefix = "shop_"});
    CHECK(source.tables() == rowlock::sql::table_names{.schema = "locks", .prefix = "shop_"});
    CHECK(rowlock::soci::open("postgresql", "dbname=d").tables() == rowlock::sql::table_names{});
}

TEST_CASE("the description of a SOCI source names the database without the password") {
    const auto description = [](const std::string& backend, const std::string& text) {
        return rowlock::soci::open(backend, text).description();
    };
    CHECK(description("mysql", "host=h user=u password='a b=\\' db=x' port = 3307 db='shop'") ==
          "MySQL through SOCI host=h port=3307 db=shop");
    CHECK(description("postgresql", "postgresql://u:p%40@ss@h:1/shop?sslmode=x&password=y") ==
          "PostgreSQL through SOCI postgresql://h:1/shop");
    CHECK(description("postgresql", "dbname=shop password=secret") ==
          "PostgreSQL through SOCI dbname=shop");
}

TEST_CASE("the error for a malformed SOCI connection string does not quote it") {
    for (const char* const backend : {"postgresql", "mysql"}) {
        const auto source = rowlock::soci::open(backend, "host=127.0.0.1 port=x1 Xq7secret");
        try {
            (void)source.connect(soon());
            FAIL_CHECK("connected");
        } catch (const rowlock::error& e) {
            const std::string text = std::string{e.what()} + e.server_message();
            CHECK(text.find("Xq7secret") == std::string::npos);
        }
    }
}

// --- PostgreSQL ---

TEST_CASE("through SOCI, a PostgreSQL parameter that repeats is one parameter of one type") {
    if (!soci_postgresql_fixture::available()) return;
    const auto db = soci_postgresql_fixture::source().connect(soon());
    const result back =
        run(*db, "select $2, $1::bigint + 1 where $1 is not null and $2 <> 'a:b'", {1, "it's"});
    CHECK(back.text(0, 0) == "it's");
    CHECK(back.integer(0, 1) == 2);
    CHECK(run(*db, "select 'a:b', $1::text, 'c::d'", {"x"}).text(0, 2) == "c::d");
}

TEST_CASE("through SOCI, PostgreSQL's numbers come back to the last digit") {
    if (!soci_postgresql_fixture::available()) return;
    const auto db = soci_postgresql_fixture::source().connect(soon());
    const result back = run(*db, "select 12345678901234567890.12345678901234567890::numeric, true");
    CHECK(back.text(0, 0) == "12345678901234567890.12345678901234567890");
    CHECK(back.text(0, 1) == "t");
}

TEST_CASE("through SOCI, statements survive DISCARD ALL") {
    if (!soci_postgresql_fixture::available()) return;
    const auto db = soci_postgresql_fixture::source().connect(soon());
    const statement select{"select $1::bigint"};
    CHECK(db->execute(select, std::vector<value>{1}, soon()).integer(0, 0) == 1);
    (void)db->query("discard all", soon());
    CHECK(db->execute(select, std::vector<value>{2}, soon()).integer(0, 0) == 2);
}

TEST_CASE("a SOCI session in single-row mode is not borrowed") {
    if (!soci_postgresql_fixture::available()) return;
    soci::session session{"postgresql", postgresql_pairs() + " singlerow=true"};
    CHECK(kind_of([&] { rowlock::soci::connection_ref{session}; }) == errc::unsupported);
    CHECK(kind_of([] { (void)rowlock::soci::open("postgresql", "dbname=x singlerow=yes"); }) ==
          errc::invalid_url);
}

TEST_CASE("through SOCI, a failed transaction keeps its first failure") {
    if (!soci_postgresql_fixture::available()) return;
    const auto db = soci_postgresql_fixture::source().connect(soon());
    const auto other = soci_postgresql_fixture::source().connect(soon());
    (void)other->query("drop table if exists soci_changed", soon());
    (void)other->query("create table soci_changed (a int)", soon());
    const statement select{"select * from soci_changed"};
    (void)db->execute(select, {}, soon());
    (void)other->query("alter table soci_changed add b int", soon());
    (void)db->query("begin", soon());
    try {
        (void)db->execute(select, {}, soon());
        FAIL_CHECK("no error was thrown");
    } catch (const rowlock::error& e) {
        CHECK(e.sqlstate() == "0A000");
    }
    (void)db->query("rollback", soon());
    CHECK(db->execute(select, {}, soon()).columns() == 2);
    (void)other->query("drop table soci_changed", soon());
}

// --- MySQL ---

TEST_CASE("through SOCI, no MySQL parameter can end its literal, in any mode or character set") {
    if (!soci_mysql_fixture::available()) return;
    const std::vector<std::string> texts{"",
                                         "'",
                                         "''",
                                         "\\",
                                         "\\'",
                                         "' or 1=1 -- ",
                                         "\\' or 1=1 -- ",
                                         std::string{"a"} + '\0' + "' or 1=1 -- ",
                                         "\xf0\x9f\x94\x92",
                                         "\xbf\x27 or 1=1 -- ",
                                         ":p1 :x $1 ?",
                                         "x' or 1=1 -- "};
    const auto keeps = [&](connection& db) {
        for (const std::string& text : texts) {
            CAPTURE(text);
            (void)db.query("create temporary table soci_bytes (a varbinary(200), b bigint)",
                           soon());
            run(db, "insert into soci_bytes (a, b) values ($1, $2)", {text, -7});
            run(db, "insert into soci_bytes (a, b) values ('other', 1)");
            const result back =
                run(db, "select a, 5-$2 from soci_bytes where a = $1 and b = $2", {text, -7});
            CHECK(back.rows() == 1);
            CHECK((back.text(0, 0) == text));
            CHECK(back.integer(0, 1) == 12);
            (void)db.query("drop temporary table soci_bytes", soon());
        }
    };
    const auto own = soci_mysql_fixture::source().connect(soon());
    keeps(*own);
    (void)own->query("set sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'", soon());
    keeps(*own);
    for (const char* const charset : {"latin1", "utf8mb3", "gbk", "sjis"}) {
        CAPTURE(charset);
        soci::session session{"mysql", mysql_pairs() + " charset=" + charset};
        rowlock::soci::connection_ref borrowed{session};
        keeps(borrowed);
        (void)borrowed.query(std::string{"set names "} + charset, soon());
        keeps(borrowed);
    }
}

TEST_CASE("through SOCI, MySQL's decimals come back to the last digit") {
    if (!soci_mysql_fixture::available()) return;
    const auto db = soci_mysql_fixture::source().connect(soon());
    const result back = run(*db, "select 1234567890123456789.25, 18446744073709551615, sum($1)",
                            {9'007'199'254'740'993});
    CHECK(back.text(0, 0) == "1234567890123456789.25");
    CHECK(back.text(0, 1) == "18446744073709551615");
    CHECK(back.integer(0, 2) == 9'007'199'254'740'993);
}

TEST_CASE("a SOCI session that reconnects by itself is not borrowed") {
    if (!soci_mysql_fixture::available()) return;
    soci::session session{"mysql", mysql_pairs() + " reconnect=1"};
    CHECK(kind_of([&] { rowlock::soci::connection_ref{session}; }) == errc::unsupported);
    soci::session plain{"mysql", mysql_pairs()};
    CHECK_NOTHROW(rowlock::soci::connection_ref{plain});
}

TEST_CASE("through SOCI, a call to a silent MySQL server fails after read_timeout") {
    if (!soci_mysql_fixture::available()) return;
    support::tcp_relay relay{soci_mysql_fixture::server_port()};
    server_address server = address_of(support::server::mariadb);
    server.host = "127.0.0.1";
    server.port = relay.port();
    const auto source = rowlock::soci::open("mysql", pairs(server, "db") + " read_timeout=1");
    std::unique_ptr<connection> db;
    // It is also a limit of the login, which a stall of the server exceeds.
    REQUIRE(support::eventually(
        [&] { return kind_of([&] { db = source.connect(soon()); }) == errc{}; }));
    relay.fall_silent();
    const auto start = clock::now();
    CHECK(kind_of([&] { run(*db, "select 1"); }) == errc::outcome_unknown);
    CHECK(clock::now() - start < 10s);
    CHECK_FALSE(db->alive());
    CHECK(kind_of([&] { run(*db, "select 1"); }) == errc::database_unreachable);
}

TEST_CASE("through SOCI, a connection to PostgreSQL has the keepalives of the libpq driver") {
    if (!soci_postgresql_fixture::available()) return;
    const auto db = soci_postgresql_fixture::source().connect(soon());
    const auto found = sockets_to(soci_postgresql_fixture::server_port());
    REQUIRE(found.size() == 1);
    CHECK(tcp_limits_of(found.front()) == std::array<int, 4>{10, 5, 3, 15'000});
}

TEST_CASE("through SOCI, a PostgreSQL connection that its server ended is dead") {
    if (!soci_postgresql_fixture::available()) return;
    const auto db = soci_postgresql_fixture::source().connect(soon());
    (void)db->query("set idle_in_transaction_session_timeout = 1", soon());
    const auto id = std::string{db->query("select pg_backend_pid()", soon()).text(0, 0)};
    (void)db->query("begin", soon());
    const auto other = soci_postgresql_fixture::source().connect(soon());
    const std::string there = "select count(*) from pg_stat_activity where pid = " + id;
    REQUIRE(support::eventually([&] { return other->query(there, soon()).integer(0, 0) == 0; }));
    CHECK(kind_of([&] { (void)db->query("select 1", soon()); }) == errc::outcome_unknown);
    CHECK_FALSE(db->alive());
}

TEST_CASE("through SOCI, an update of MySQL counts the rows it matched") {
    if (!soci_mysql_fixture::available()) return;
    const auto db = soci_mysql_fixture::source().connect(soon());
    (void)db->query("create temporary table soci_matched (a bigint)", soon());
    run(*db, "insert into soci_matched values (1)");
    CHECK(run(*db, "update soci_matched set a = $1", {1}).affected() == 1);
    CHECK(run(*db, "update soci_matched set a = $1 where a = 9", {1}).affected() == 0);
}

// --- SQLite ---

TEST_CASE("through SOCI, SQLite runs a statement once, keeps 64 bits and counts right") {
    const auto db = soci_sqlite3_fixture::source().connect(soon());
    (void)db->query("create temp table soci_once (a integer, b varbinary(9), c)", soon());
    const statement insert{"insert into soci_once values ($1, $2, $1) returning a, b, c"};
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{5'000'000'000}}) {
        const result back = db->execute(insert, std::vector<value>{n, "x"}, soon());
        CHECK(back.integer(0, 0) == n);
        CHECK(back.integer(0, 2) == n);
        CHECK(back.affected() == 1);
    }
    const result all = run(*db, "select count(*) from soci_once");
    CHECK(all.integer(0, 0) == 2);
    CHECK(all.affected() == 0);
    CHECK(run(*db, "delete from soci_once").affected() == 2);
}

TEST_CASE("through SOCI, a stale SQLite snapshot is a conflict and leaves nothing behind") {
    const auto one = soci_sqlite3_fixture::source().connect(soon());
    const auto two = soci_sqlite3_fixture::source().connect(soon());
    (void)one->query("create table if not exists soci_stale (a)", soon());
    const statement insert{"insert into soci_stale values (1)"};
    (void)one->query("begin", soon());
    run(*one, "select * from soci_stale");
    (void)two->execute(insert, {}, soon());
    CHECK(kind_of([&] { (void)one->execute(insert, {}, soon()); }) == errc::conflict);
    (void)one->query("rollback", soon());
    CHECK(one->execute(insert, {}, soon()).affected() == 1);
    CHECK(two->query("pragma wal_checkpoint(truncate)", soon()).integer(0, 0) == 0);
}

// --- sessions ---

TEST_CASE("a forked child can neither use nor close its parent's SOCI session") {
    const auto check = [](const rowlock::sql::connection_source& source) {
        auto db = source.connect(soon());
        const statement select{"select 1 + $1"};
        CHECK(db->execute(select, std::vector<value>{1}, soon()).integer(0, 0) == 2);
        CHECK(support::is_true_in_child([&] {
            bool refused = false;
            try {
                (void)db->execute(select, std::vector<value>{1}, soon());
            } catch (const rowlock::error& e) {
                refused = e.kind() == errc::wrong_process;
            }
            db.reset();
            return refused;
        }));
        CHECK(db->execute(select, std::vector<value>{2}, soon()).integer(0, 0) == 3);
        CHECK(db->alive());
    };
    check(soci_sqlite3_fixture::source());
    if (soci_postgresql_fixture::available()) check(soci_postgresql_fixture::source());
    if (soci_mysql_fixture::available()) check(soci_mysql_fixture::source());
}

TEST_CASE("a SOCI session that was closed under its borrower is noticed") {
    soci::session session{"sqlite3", "db=" + sqlite_path("soci-closed.db")};
    {
        rowlock::soci::connection_ref db{session};
        CHECK(db.query("select 1", soon()).integer(0, 0) == 1);
        session.close();
        CHECK(kind_of([&] { (void)db.query("select 1", soon()); }) == errc::database_unreachable);
        CHECK_FALSE(db.alive());
    }
    CHECK(kind_of([&] { rowlock::soci::connection_ref{session}; }) == errc::invalid_options);
}

TEST_CASE("a SOCI logger sees the statements but no parameter") {
    if (!soci_mysql_fixture::available()) return;
    soci::session session{"mysql", mysql_pairs()};
    std::ostringstream log;
    session.set_log_stream(&log);
    rowlock::soci::connection_ref db{session};
    run(db, "select $1", {"Xq7secret"});
    CHECK(log.str().find("select $1") != std::string::npos);
    CHECK(log.str().find("Xq7") == std::string::npos);
    CHECK(log.str().find("587137") == std::string::npos);
}

}  // namespace contract
