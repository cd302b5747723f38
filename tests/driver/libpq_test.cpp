// The promises of the libpq driver beyond the contract of every driver.
#include "driver/tcp_limits.hpp"
#include "support/child.hpp"
#include "support/server_address.hpp"
#include "support/servers.hpp"
#include "support/tcp_listener.hpp"
#include "support/tcp_relay.hpp"
#include "support/waits.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>

#include <doctest/doctest.h>
#include <libpq-fe.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace contract {
namespace {

using namespace std::chrono_literals;
using rowlock::errc;
using rowlock::postgresql::connection_ref;
using rowlock::sql::connection;
using rowlock::sql::statement;
using rowlock::sql::value;
using clock = std::chrono::steady_clock;
using support::soon;

bool available() {
    return support::url_of(support::server::postgresql).has_value();
}

server_address server() {
    return address_of(support::server::postgresql);
}

std::unique_ptr<connection> connect(const std::string& url, rowlock::postgresql::options how = {}) {
    return rowlock::postgresql::open(url, how).connect(soon());
}

std::unique_ptr<connection> connect() {
    return connect(server().url());
}

// An application's own connection.
class application {
public:
    application() : handle_{PQconnectdb(server().url().c_str())} {
        REQUIRE(PQstatus(handle_) == CONNECTION_OK);
        PQsetNoticeReceiver(
            handle_, [](void*, const PGresult*) {}, nullptr);
    }
    application(const application&) = delete;
    application& operator=(const application&) = delete;
    ~application() { PQfinish(handle_); }

    PGconn* handle() { return handle_; }

    std::string run(const std::string& text) {
        PGresult* const answer = PQexec(handle_, text.c_str());
        const bool rows = PQresultStatus(answer) == PGRES_TUPLES_OK && PQntuples(answer) > 0;
        CHECK_MESSAGE((rows || PQresultStatus(answer) == PGRES_COMMAND_OK),
                      std::string{PQerrorMessage(handle_)});
        std::string cell = rows ? PQgetvalue(answer, 0, 0) : "";
        PQclear(answer);
        return cell;
    }

    std::string prepared() {
        return run("select count(*) from pg_prepared_statements where name like 'rowlock%'");
    }

private:
    PGconn* handle_;
};

// A table that contains 1, and a prepared statement whose posted executions insert into it.
class posting_table {
public:
    posting_table() : db_{connect()} {
        static std::atomic<int> made{0};
        name_ = "rowlock_posting_" + std::to_string(::getpid()) + "_" + std::to_string(++made);
        application{}.run("create table " + name_ + " (key bigint primary key)");
        insert_.emplace("insert into " + name_ + " values ($1)");
        count_.emplace("select count(*) from " + name_);
        const std::array<value, 1> one{1};
        (void)db_->execute(*insert_, one, soon());
        (void)count();
    }
    posting_table(const posting_table&) = delete;
    posting_table& operator=(const posting_table&) = delete;
    ~posting_table() {
        close();
        application{}.run("drop table " + name_);
    }

    connection& db() { return *db_; }
    [[nodiscard]] const std::string& name() const { return name_; }
    void close() { db_.reset(); }

    bool post(std::int64_t key) {
        const std::array<value, 1> parameters{key};
        return db_->post(*insert_, parameters, soon(),
                         [this](const rowlock::sql::result* done, const rowlock::error* failure) {
                             if (done != nullptr) {
                                 told_ += std::to_string(done->affected()) + " row; ";
                             } else {
                                 const bool unknown = failure->kind() == errc::outcome_unknown;
                                 told_ += unknown ? "unknown; " : "failed; ";
                             }
                         });
    }
    std::int64_t count(std::chrono::milliseconds within = 20s) {
        return db_->execute(*count_, {}, clock::now() + within).integer(0, 0);
    }
    [[nodiscard]] const std::string& told() const { return told_; }

private:
    std::unique_ptr<connection> db_;
    std::string name_;
    std::optional<statement> insert_;
    std::optional<statement> count_;
    std::string told_;
};

struct failure {
    errc kind{};
    std::string sqlstate;
    std::string text;
    std::chrono::milliseconds after{};
};

template <typename Call>
failure failure_of(Call call) {
    const auto start = clock::now();
    try {
        call();
    } catch (const rowlock::error& e) {
        const auto took =
            std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start);
        return {e.kind(), e.sqlstate(), std::string{e.what()} + " | " + e.server_message(), took};
    }
    FAIL_CHECK("no error was thrown");
    return {};
}

std::string cell(connection& of, const std::string& text) {
    return std::string{of.query(text, soon()).text(0, 0)};
}

std::int64_t three(connection& on, const statement& what, int n) {
    return on.execute(what, std::vector<value>{n}, soon()).integer(0, 0);
}

// The test's own table, with a locked row.
class held_row {
public:
    held_row() : name_{"contract_libpq_" + std::to_string(::getpid())} {
        (void)holder_->query("drop table if exists " + name_, soon());
        (void)holder_->query("create table " + name_ + " (id int primary key, n int)", soon());
        (void)holder_->query("insert into " + name_ + " values (1, 0)", soon());
        (void)holder_->query("begin", soon());
        (void)holder_->query("update " + name_ + " set n = n", soon());
    }
    held_row(const held_row&) = delete;
    held_row& operator=(const held_row&) = delete;
    ~held_row() {
        (void)holder_->query("rollback", soon());
        (void)holder_->query("drop table " + name_, soon());
    }
    [[nodiscard]] const std::string& name() const { return name_; }

private:
    std::string name_;
    std::unique_ptr<connection> holder_ = connect();
};

// Sets an environment variable for a test.
class environment {
public:
    environment(const char* name, const std::string& text) : name_{name} {
        ::setenv(name, text.c_str(), 1);
    }
    environment(const environment&) = delete;
    environment& operator=(const environment&) = delete;
    ~environment() { ::unsetenv(name_); }

private:
    const char* name_;
};

}  // namespace

// --- prepared statements -------------------------------------------------------------------------

TEST_CASE("a handle borrowed for one statement is left without prepared ones") {
    if (!available()) return;
    application app;
    connection_ref db{app.handle()};
    const statement select{"select 1 + $1"};
    CHECK(three(db, select, 1) == 2);
    CHECK(app.prepared() == "0");
    CHECK(db.round_trips() == 1);
    CHECK(three(db, select, 2) == 3);
    CHECK(app.prepared() == "1");
    CHECK(db.round_trips() == 2);
}

TEST_CASE("statements prepared on a borrowed handle are closed with the reference") {
    if (!available()) return;
    application app;
    const statement select{"select 1 + $1"};
    for (const bool in_transaction : {false, true}) {
        CAPTURE(in_transaction);
        if (in_transaction) app.run("begin");
        {
            connection_ref db{app.handle()};
            for (const int n : {1, 2, 3}) (void)three(db, select, n);
            CHECK(app.prepared() == "1");
        }
        CHECK(app.prepared() == "0");
        if (in_transaction) {
            CHECK(PQtransactionStatus(app.handle()) == PQTRANS_INTRANS);
            app.run("commit");
        }
    }
}

TEST_CASE("closing statements that no longer exist does not abort the owner's transaction") {
    if (!available()) return;
    application app;
    const statement select{"select 1 + $1"};
    app.run("begin");
    {
        connection_ref db{app.handle()};
        for (const int n : {1, 2, 3}) (void)three(db, select, n);
        app.run("deallocate all");
    }
    CHECK(PQtransactionStatus(app.handle()) == PQTRANS_INTRANS);
    app.run("commit");
}

TEST_CASE("a reference that ends in a failed transaction leaves it as it is") {
    if (!available()) return;
    application app;
    const statement select{"select 1 + $1"};
    app.run("begin");
    {
        connection_ref db{app.handle()};
        for (const int n : {1, 2, 3}) (void)three(db, select, n);
        CHECK_THROWS_AS((void)db.query("select 1/0", soon()), rowlock::error);
        CHECK(failure_of([&] { (void)three(db, select, 1); }).sqlstate == "25P02");
    }
    CHECK(PQtransactionStatus(app.handle()) == PQTRANS_INERROR);
    app.run("rollback");
}

TEST_CASE("statements that the owner discarded are prepared again") {
    if (!available()) return;
    application app;
    connection_ref db{app.handle()};
    const statement select{"select 1 + $1"};
    for (const int n : {1, 2, 3}) (void)three(db, select, n);
    app.run("discard all");
    CHECK(three(db, select, 4) == 5);
    CHECK(three(db, select, 5) == 6);
    app.run("discard all");
    app.run("begin");
    CHECK(failure_of([&] { (void)three(db, select, 1); }).sqlstate == "26000");
    app.run("rollback");
    CHECK(three(db, select, 6) == 7);
    CHECK(db.alive());
}

TEST_CASE("a table that changes within a transaction costs one failure") {
    if (!available()) return;
    application app;
    app.run("create temporary table contract_changed (id int)");
    app.run("insert into contract_changed values (7)");
    connection_ref db{app.handle()};
    const statement select{"select * from contract_changed where $1 > 0"};
    for (const int n : {1, 2, 3}) CHECK(three(db, select, n) == 7);
    app.run("begin");
    app.run("alter table contract_changed add column later int");
    CHECK(failure_of([&] { (void)three(db, select, 1); }).sqlstate == "0A000");
    app.run("rollback");
    app.run("alter table contract_changed add column later int");
    for (const int n : {1, 2, 3}) {
        CHECK(db.execute(select, std::vector<value>{n}, soon()).columns() == 2);
    }
    CHECK(app.prepared() == "1");
}

TEST_CASE("a program that makes ever more statements does not fill the server's memory") {
    if (!available()) return;
    const auto db = connect();
    for (int n = 0; n < 1100; ++n) {
        const statement fresh{"select $1 + " + std::to_string(n)};
        REQUIRE(three(*db, fresh, 1) == n + 1);
    }
    CHECK(std::stoi(cell(*db, "select count(*) from pg_prepared_statements")) <= 512);
}

TEST_CASE("a failure at the commit is reported") {
    if (!available()) return;
    const auto db = connect();
    (void)db->query("create temporary table t (id int unique deferrable initially deferred)",
                    soon());
    const statement insert{"insert into t values ($1), ($1)"};
    for (int repeat = 0; repeat < 2; ++repeat) {
        CHECK(failure_of([&] { (void)db->execute(insert, std::vector<value>{1}, soon()); }).kind ==
              errc::unique_violation);
    }
    CHECK(cell(*db, "select count(*) from t") == "0");
}

TEST_CASE("COPY is refused and closes the connection") {
    if (!available()) return;
    for (const std::string text : {"copy (select 1) to stdout", "copy pg_class from stdin"}) {
        const auto db = connect();
        CHECK(failure_of([&] { (void)db->query(text, soon()); }).kind == errc::unsupported);
        CHECK_FALSE(db->alive());
    }
}

// --- the handle's state --------------------------------------------------------------------------

TEST_CASE("a borrowed handle keeps its blocking mode") {
    if (!available()) return;
    application app;
    for (const int mode : {0, 1, 0}) {
        CHECK(PQsetnonblocking(app.handle(), mode) == 0);
        connection_ref db{app.handle()};
        (void)db.query("select 1", soon());
        (void)db.execute(statement{"select 1"}, {}, soon());
        CHECK_THROWS_AS((void)db.query("selekt", soon()), rowlock::error);
        CHECK(PQisnonblocking(app.handle()) == mode);
    }
}

TEST_CASE("a handle that is busy or in pipeline mode is refused and left alone") {
    if (!available()) return;
    application app;
    connection_ref db{app.handle()};
    CHECK(PQsendQuery(app.handle(), "select 42") == 1);
    CHECK(failure_of([&] { (void)db.query("select 1", soon()); }).kind == errc::invalid_options);
    PGresult* const answer = PQgetResult(app.handle());
    CHECK(std::string{PQgetvalue(answer, 0, 0)} == "42");
    PQclear(answer);
    CHECK(PQgetResult(app.handle()) == nullptr);
    CHECK(PQenterPipelineMode(app.handle()) == 1);
    CHECK(failure_of([&] { (void)db.query("select 1", soon()); }).kind == errc::invalid_options);
    CHECK(PQexitPipelineMode(app.handle()) == 1);
    CHECK(db.alive());
    CHECK(cell(db, "select 1") == "1");
}

TEST_CASE("another client encoding is refused: names would differ") {
    if (!available()) return;
    application app;
    app.run("set client_encoding = 'LATIN1'");
    connection_ref db{app.handle()};
    CHECK(failure_of([&] { (void)db.query("select 1", soon()); }).kind == errc::invalid_options);
    app.run("set client_encoding = 'UTF8'");
    CHECK(cell(db, "select 1") == "1");
    const environment other{"PGCLIENTENCODING", "LATIN1"};
    CHECK(cell(*connect(), "show client_encoding") == "UTF8");
}

TEST_CASE("a null handle is refused") {
    CHECK(failure_of([] { const connection_ref db{nullptr}; }).kind == errc::invalid_options);
}

// --- deadlines -----------------------------------------------------------------------------------

TEST_CASE("a statement past its deadline is cancelled, and known not to have happened") {
    if (!available()) return;
    const held_row row;
    const statement update{"update " + row.name() + " set n = $1"};
    for (const bool borrowed : {false, true}) {
        CAPTURE(borrowed);
        const auto cancelled_each_time = [&] {
            application app;
            const auto own = connect();
            connection_ref ref{app.handle()};
            connection& db = borrowed ? static_cast<connection&>(ref) : *own;
            for (int repeat = 0; repeat < 3; ++repeat) {
                const failure told = failure_of(
                    [&] { (void)db.execute(update, std::vector<value>{1}, clock::now() + 200ms); });
                CHECK(told.after >= 190ms);
                const bool in_time = told.after <= 200ms + 1s;
                const bool cancelled = told.kind == errc::timed_out && told.sqlstate == "57014";
                if (!in_time || !cancelled || !db.alive()) return false;
            }
            CHECK(cell(db, "select 1") == "1");
            CHECK(cell(db, "select n from " + row.name()) == "0");
            return true;
        };
        // A server that stalls does not confirm in time that it has cancelled.
        CHECK(support::eventually(cancelled_each_time));
    }
}

TEST_CASE("a cancelled statement leaves the borrowed transaction failed, not ended") {
    if (!available()) return;
    const held_row row;
    const auto cancelled = [&] {
        application app;
        app.run("begin");
        connection_ref db{app.handle()};
        const failure told = failure_of(
            [&] { (void)db.query("update " + row.name() + " set n = 1", clock::now() + 100ms); });
        if (told.kind != errc::timed_out) return false;
        CHECK(PQtransactionStatus(app.handle()) == PQTRANS_INERROR);
        app.run("rollback");
        CHECK(app.run("select 1") == "1");
        return true;
    };
    // A server that stalls does not confirm in time that it has cancelled.
    CHECK(support::eventually(cancelled));
}

TEST_CASE("a cancel request without an answer does not hang the call") {
    if (!available()) return;
    // The cancel request goes through the silent relay too.
    support::tcp_relay relay{server().port};
    server_address by_relay = server();
    by_relay.host = "127.0.0.1";
    by_relay.port = relay.port();
    std::vector<std::unique_ptr<connection>> all;
    all.reserve(12);
    while (all.size() < 12) all.push_back(connect(by_relay.url()));
    relay.fall_silent();
    int late = 0;
    for (const auto& db : all) {
        const failure told = failure_of([&] { (void)db->query("select 1", clock::now() + 50ms); });
        CHECK(told.kind == errc::outcome_unknown);
        if (told.after > 50ms + 1s) ++late;
        CHECK_FALSE(db->alive());
    }
    CHECK(late <= 2);  // when the machine stalled
}

// --- connecting ----------------------------------------------------------------------------------

TEST_CASE("the next host is tried when one is dead or silent, within the deadline") {
    if (!available()) return;
    const support::closed_port dead;
    const support::silent_listener silent;
    const server_address live = server();
    const std::string login = "postgresql://" + live.user + ":" + live.password + "@";
    const std::string good = live.host + ":" + std::to_string(live.port);
    for (const std::uint16_t bad : {dead.port(), silent.port()}) {
        std::string url = login;
        url.append("127.0.0.1:").append(std::to_string(bad)).append(",").append(good);
        url.append("/").append(live.database);
        const auto time_to_connect = [&]() -> clock::duration {
            const auto start = clock::now();
            try {
                const auto db = rowlock::postgresql::open(url).connect(start + 2s);
                const auto took = clock::now() - start;
                CHECK(cell(*db, "select 1") == "1");
                return took;
            } catch (const rowlock::error& e) {  // when the live one stalled
                CHECK(e.kind() == errc::database_unreachable);
                return 2s;
            }
        };
        CHECK(support::at_best(2s, time_to_connect) < 2s);
    }
    const std::string none = login + "127.0.0.1:" + std::to_string(dead.port()) +
                             ",127.0.0.1:" + std::to_string(silent.port()) + "/" + live.database;
    const auto time_to_fail = [&] {
        const failure told = failure_of(
            [&] { (void)rowlock::postgresql::open(none).connect(clock::now() + 500ms); });
        CHECK(told.kind == errc::database_unreachable);
        CHECK(told.text.find("refused") != std::string::npos);
        CHECK(told.text.find(live.password) == std::string::npos);
        return told.after;
    };
    CHECK(support::at_best(1500ms, time_to_fail) < 1500ms);
}

TEST_CASE("connect_timeout bounds each host") {
    if (!available()) return;
    const support::silent_listener silent;
    const failure told = failure_of([&] {
        (void)rowlock::postgresql::open("host=127.0.0.1 connect_timeout=1 port=" +
                                        std::to_string(silent.port()))
            .connect(soon());
    });
    CHECK(told.kind == errc::database_unreachable);
    CHECK(told.after >= 900ms);
    CHECK(told.after < 20s);  // soon() is later
}

TEST_CASE("of several hosts the one that accepts writes is chosen, unless the URL says otherwise") {
    if (!available()) return;
    const server_address live = server();
    const std::string host = live.host + ":" + std::to_string(live.port);
    const std::string read_only = "?options=-c%20default_transaction_read_only%3Don";
    const std::string start = "postgresql://" + live.user + ":" + live.password + "@";
    const std::string two = start + host + "," + host + "/" + live.database + read_only;
    CHECK(failure_of([&] { (void)connect(two); }).kind == errc::database_unreachable);
    CHECK(cell(*connect(two + "&target_session_attrs=any"), "select 1") == "1");
    const auto one = connect(start + host + "/" + live.database + read_only);
    CHECK(failure_of([&] {
              (void)one->query("create table contract_never (id int)", soon());
          }).kind == errc::read_only);
    const environment attributes{"PGTARGETSESSIONATTRS", "any"};
    CHECK(cell(*connect(two), "select 1") == "1");
}

TEST_CASE("a TCP connection has the keepalives of its options, unless the URL says otherwise") {
    if (!available()) return;
    using limits = std::array<int, 4>;
    const auto limits_of = [](const std::string& url, rowlock::postgresql::options how) {
        return tcp_limits_of(connect(url, how)->socket());
    };
    const auto url = server().url();
    CHECK(limits_of(url, {}) == limits{10, 5, 3, 15'000});
    const rowlock::postgresql::options others{.keepalives_idle_s = 20,
                                              .keepalives_interval_s = 7,
                                              .keepalives_count = 4,
                                              .tcp_user_timeout_ms = 9'000};
    CHECK(limits_of(url, others) == limits{20, 7, 4, 9'000});
    CHECK(limits_of(url + "?keepalives_idle=33&tcp_user_timeout=8000", others) ==
          limits{33, 7, 4, 8'000});
}

TEST_CASE("the server sees the application's name") {
    if (!available()) return;
    const std::string ask = "show application_name";
    CHECK(cell(*connect(), ask) == "rowlock");
    CHECK(cell(*connect(server().url() + "?application_name=mine"), ask) == "mine");
    const environment name{"PGAPPNAME", "theirs"};
    CHECK(cell(*connect(), ask) == "theirs");
}

TEST_CASE("behind a transaction pooler nothing is prepared") {
    if (!available()) return;
    const server_address at = server();
    const std::string pairs = "host=" + at.host + " port=" + std::to_string(at.port) +
                              " user=" + at.user + " password='" + at.password +
                              "' dbname=" + at.database;
    const std::string url = at.url();
    rowlock::postgresql::options pooled;
    pooled.transaction_pooler = true;
    const statement select{"select 1 + $1"};
    const auto check = [&](const std::string& where, rowlock::postgresql::options how) {
        CAPTURE(where.substr(where.find("rowlock")));
        const auto db = connect(where, how);
        CHECK_FALSE(db->keeps_session_state());
        for (const int n : {1, 2, 3}) CHECK(three(*db, select, n) == n + 1);
        CHECK(db->round_trips() == 3);
        CHECK(cell(*db, "select count(*) from pg_prepared_statements") == "0");
        const failure told = failure_of([&] { (void)db->query("select 1/0", soon()); });
        CHECK(told.sqlstate == "22012");
    };
    check(url, pooled);
    check(url + "?rowlock_pooler=transaction", {});
    check(url + "?rowlock_pooler=transaction&application_name=x", {});
    check(url + "?application_name=x&rowlock_pooler=transaction", {});
    check(pairs + " rowlock_pooler=transaction", {});
    check("rowlock_pooler = 'transaction' " + pairs, {});
    CHECK(connect(url)->keeps_session_state());
    CHECK(connect(url + "?rowlock_pooler=none", pooled)->keeps_session_state());
}

TEST_CASE("libpq is not told of the names of rowlock's tables") {
    if (!available()) return;
    const std::string url = server().url();
    const std::string mark = url.find('?') == std::string::npos ? "?" : "&";
    for (const char* names :
         {"rowlock_schema=locks&rowlock_prefix=app_", "rowlock_prefix=app_&application_name=x",
          "application_name=x&rowlock%5Fschema=locks"}) {
        CAPTURE(names);
        CHECK(cell(*connect(url + mark + names), "select 1") == "1");
    }
}

TEST_CASE("a password is also read from a password file, and a missing one is an error") {
    if (!available()) return;
    server_address at = server();
    const std::string url = "postgresql://" + at.user + "@" + at.host + ":" +
                            std::to_string(at.port) + "/" + at.database;
    char folder[] = "/tmp/contract_libpq_XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::string path = std::string{folder} + "/pgpass";
    {
        const environment file{"PGPASSFILE", path};
        const failure told = failure_of([&] { (void)connect(url); });
        CHECK(told.kind == errc::access_denied);
        CHECK(told.text.find("PGPASSWORD") != std::string::npos);
        std::ofstream{path} << "*:*:*:*:" << at.password << "\n";
        ::chmod(path.c_str(), 0600);
        CHECK(cell(*connect(url), "select 1") == "1");
    }
    ::unlink(path.c_str());
    ::rmdir(folder);
}

TEST_CASE("a parameter that libpq cannot use is the URL's fault") {
    CHECK(failure_of([] { (void)connect("postgresql://127.0.0.1:1/x?sslmode=sideways"); }).kind ==
          errc::invalid_url);
}

// --- posted statements -------------------------------------------------------------------------

TEST_CASE("libpq: a posted statement runs before the next one, whose call reports it") {
    if (!available()) return;
    posting_table table;
    CHECK(table.post(2));
    CHECK(table.told() == "");
    CHECK(table.count() == 2);
    CHECK(table.told() == "1 row; ");
    CHECK(table.db().transaction() == rowlock::sql::transaction_state::none);
}

TEST_CASE("libpq: the failure of a posted statement is reported, and affects no other") {
    if (!available()) return;
    posting_table table;
    CHECK(table.post(1));
    CHECK(table.post(2));
    CHECK(table.count() == 2);
    CHECK(table.told() == "failed; 1 row; ");
    CHECK(table.db().alive());
}

TEST_CASE(
    "libpq: a query, a new statement, LISTEN and a second post read the posted answer first") {
    if (!available()) return;
    posting_table table;
    REQUIRE(table.post(2));
    SUBCASE("query") {
        (void)table.db().query("select 1", soon());
    }
    SUBCASE("a statement not prepared yet") {
        (void)table.db().execute(statement{"select 2"}, {}, soon());
    }
    SUBCASE("listen") {
        table.db().notifications()->listen("rowlock_posted", soon());
    }
    SUBCASE("the next posted statement") {
        REQUIRE(table.post(3));
    }
    CHECK(table.told() == "1 row; ");
}

TEST_CASE("libpq: nothing is posted unprepared, in a transaction or on a borrowed handle") {
    if (!available()) return;
    posting_table table;
    const auto told = [](const rowlock::sql::result*, const rowlock::error*) { FAIL("told"); };
    CHECK_FALSE(table.db().post(statement{"select 3"}, {}, soon(), told));
    (void)table.db().query("begin", soon());
    CHECK_FALSE(table.post(5));
    (void)table.db().query("rollback", soon());
    application theirs;
    connection_ref borrowed{theirs.handle()};
    const statement one{"select 1"};
    for (int i = 0; i < 3; ++i) (void)borrowed.execute(one, {}, soon());
    CHECK_FALSE(borrowed.post(one, {}, soon(), told));
}

TEST_CASE("libpq: the unknown outcome of a posted statement is reported once") {
    if (!available()) return;
    posting_table table;
    const auto process = table.db().announced_process();
    REQUIRE(table.post(2));
    SUBCASE("the connection is destroyed") {
        table.close();
    }
    SUBCASE("the server process is gone") {
        application admin;
        admin.run("select pg_terminate_backend(" + std::to_string(process) + ")");
        // The answer may have come before the end.
        try {
            (void)table.db().query("select 1", soon());
            (void)table.count();
        } catch (const rowlock::error&) {
        }
        CHECK_FALSE(table.db().alive());
        table.close();
    }
    CHECK((table.told() == "unknown; " || table.told() == "1 row; "));
}

TEST_CASE("libpq: a posted statement that waits too long is cancelled") {
    if (!available()) return;
    bool alone = false;
    SUBCASE("alone, before a query") {
        alone = true;
    }
    SUBCASE("with a statement behind it") {}
    const auto cancelled = [&] {
        posting_table table;
        application obstacle;
        obstacle.run("begin");
        obstacle.run("lock table " + table.name());
        REQUIRE(table.post(2));
        if (alone) {
            try {
                // Sent once the posted statement is cancelled: it may still be answered.
                (void)table.db().query("select 1", clock::now() + 200ms);
            } catch (const rowlock::error&) {
            }
        } else {
            CHECK_THROWS_AS((void)table.count(200ms), rowlock::error);
        }
        obstacle.run("rollback");
        return table.told() == "failed; ";
    };
    // A server that stalls does not confirm in time that it has cancelled.
    CHECK(support::eventually(cancelled));
}

// --- processes -----------------------------------------------------------------------------------

TEST_CASE("a forked child can neither use nor harm its parent's connection") {
    if (!available()) return;
    auto db = connect();
    application app;
    auto ref = std::make_unique<connection_ref>(app.handle());
    const statement select{"select 1 + $1"};
    for (const int n : {1, 2, 3}) (void)three(*ref, select, n);
    CHECK(support::exit_of_child([&] {
              int wrong = 0;
              try {
                  (void)db->query("select 1", soon());
                  wrong |= 1;
              } catch (const rowlock::error& e) {
                  if (e.kind() != errc::wrong_process) wrong |= 2;
              }
              db.reset();
              ref.reset();
              return wrong;
          }) == 0);
    CHECK(cell(*db, "select 1") == "1");
    CHECK(three(*ref, select, 4) == 5);
}

}  // namespace contract
