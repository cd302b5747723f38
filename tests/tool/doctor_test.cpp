#include "support/own_server.hpp"
#include "support/pgbouncer.hpp"
#include "support/tcp_listener.hpp"
#include "tool/tool.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace {

using nlohmann::json;

json examine(const tool::tables& in, int expected_code) {
    tool::answer got;
    // A database may stall for longer than the doctor waits.
    for (int look = 0; look < 3 && got.code != expected_code; ++look) {
        got = in.run({"doctor", "--json"});
    }
    CAPTURE(got.out);
    CAPTURE(got.err);
    CHECK(got.code == expected_code);
    REQUIRE(json::accept(got.out));
    return json::parse(got.out);
}

std::string verdict(const json& report, const std::string& check) {
    for (const auto& each : report["checks"]) {
        if (each["check"] != check) continue;
        // Every verdict but ok comes with advice.
        CHECK((each["verdict"] == "ok") == each["advice"].get<std::string>().empty());
        return each["verdict"];
    }
    return "not checked";
}

void execute(const std::string& url, const std::string& sql) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    rowlock::open(url).connect(deadline)->query(sql, deadline);
}

std::string with_user(std::string url, const std::string& user) {
    const auto begin = url.find("//") + 2;
    url.replace(begin, url.find('@') - begin, user + ":visitor");
    return url;
}

}  // namespace

TEST_CASE("the doctor finds a healthy database healthy") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto report = examine(*in, 0);
        CHECK(report["ok"] == true);
        CHECK(report["checks"].size() >= 9);
        for (const char* check : {"connection", "round trip", "schema", "rights", "queues",
                                  "semaphores", "durability"}) {
            CHECK(verdict(report, check) == "ok");
        }
        for (const char* strategy :
             {"leases", "fences", "row locks", "advisory locks", "versions"}) {
            CHECK(verdict(report, strategy) == "ok");
        }
        const bool server = std::string{in->name()} != "SQLite";
        CHECK(verdict(report, "tls") == (server ? "ok" : "not checked"));
        const bool refuses_advisory = report.dump().find("refused") != std::string::npos;
        CHECK(refuses_advisory != server);
        const bool knows_channels = std::string{in->name()} != "MariaDB";
        CHECK(verdict(report, "wake-ups") == (knows_channels ? "ok" : "not checked"));
        const auto text = in->run({"doctor"});
        CHECK(text.code == 0);
        CHECK(text.out.find("ok    rights") != std::string::npos);
    }
}

TEST_CASE("the doctor says what to do about missing tables") {
    for (const auto& in : tool::all_tables(tool::tables_wanted::none)) {
        CAPTURE(std::string{in->name()});
        if (in->url().starts_with("sqlite:"))
            continue;  // without a file there is nothing to examine
        const auto report = examine(*in, 1);
        CHECK(verdict(report, "schema") == "fail");
        CHECK(report["ok"] == false);
    }
}

TEST_CASE("the doctor says so when it cannot connect") {
    const support::closed_port nobody;
    const auto got =
        tool::rowlock({"doctor", "--json"},
                      {.variables = {{"ROWLOCK_URL", "postgresql://me:sEcrEt@127.0.0.1:" +
                                                         std::to_string(nobody.port()) + "/db"}}});
    CHECK(got.code == 69);
    CHECK(verdict(json::parse(got.out), "connection") == "fail");
    CHECK(got.out.find("sEcrEt") == std::string::npos);
}

TEST_CASE("the doctor finds missing rights by trying them, and changes nothing") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto in = tool::server_tables(which);
        if (!in) continue;
        CAPTURE(std::string{in->name()});
        const bool postgresql = which == support::server::postgresql;
        const std::string user = "visitor_" + in->prefix();
        const std::string account = postgresql ? user : "'" + user + "'@'%'";
        execute(in->url(), postgresql ? "create role " + user + " login password 'visitor'"
                                      : "create user " + account + " identified by 'visitor'");
        for (const char* table : {"session", "lock", "ticket", "version", "hold", "run", "barrier",
                                  "party", "policy", "quorum", "member"}) {
            execute(in->url(), "grant select, insert, update" +
                                   std::string{table == std::string{"lock"} ? "" : ", delete"} +
                                   " on " + in->prefix() + table + " to " + account);
        }
        execute(in->url(), "grant select, update on " + in->prefix() + "token_floor to " + account);
        execute(in->url(), "grant select on " + in->prefix() + "migration to " + account);

        const auto url = with_user(in->url(), user);
        const auto look = [&] {
            const auto got =
                tool::rowlock((*in)({"doctor", "--json"}), {.variables = {{"ROWLOCK_URL", url}}});
            REQUIRE(json::accept(got.out));
            return json::parse(got.out);
        };
        auto report = look();
        CHECK(verdict(report, "rights") == "fail");
        CHECK(report.dump().find("missing: delete on " + in->prefix() + "lock\"") !=
              std::string::npos);
        execute(in->url(), "grant delete on " + in->prefix() + "lock to " + account);
        report = look();
        CHECK(verdict(report, "rights") == "ok");
        if (postgresql) {  // MySQL's triggers run with the rights of their creator
            REQUIRE(in->run({"migrate", "--history", "on"}).code == 0);
            CHECK(verdict(look(), "history") == "fail");
            execute(in->url(), "grant insert on " + in->prefix() + "history to " + account);
            CHECK(verdict(look(), "history") == "ok");
            REQUIRE(in->run({"migrate", "--history", "drop", "--yes"}).code == 0);
        }
        CHECK(in->run({"ls", "--all"}).out.starts_with("no locks in "));

        if (postgresql) {
            execute(in->url(), "alter role " + user +
                                   " set default_transaction_isolation = "
                                   "'serializable'");
            execute(in->url(), "alter role " + user + " set synchronous_commit = off");
            report = look();
            CHECK(verdict(report, "isolation") == "warn");
            CHECK(verdict(report, "durability") == "warn");
            execute(in->url(), "drop owned by " + user);
        }
        execute(in->url(), (postgresql ? "drop role " : "drop user ") + account);
    }
}

namespace {

/// A user with the rights that `migrate --print-grants` prints, and no others.
class granted_user {
public:
    explicit granted_user(const tool::tables& in)
        : in_{in},
          name_{"client_" + in.prefix()},
          account_{is_postgresql() ? name_ : "'" + name_ + "'@'%'"} {
        execute(in.url(), is_postgresql() ? "create role " + name_ + " login password 'visitor'"
                                          : "create user " + account_ + " identified by 'visitor'");
        const auto printed = in.run({"migrate", "--print-grants", name_});
        REQUIRE(printed.code == 0);
        for (std::size_t from = 0, end = 0;
             (end = printed.out.find(";\n", from)) != std::string::npos; from = end + 2) {
            execute(in.url(), printed.out.substr(from, end - from));
        }
    }
    granted_user(const granted_user&) = delete;
    granted_user& operator=(const granted_user&) = delete;
    ~granted_user() {
        if (is_postgresql()) execute(in_.url(), "drop owned by " + name_);
        execute(in_.url(), (is_postgresql() ? "drop role " : "drop user ") + account_);
    }

    [[nodiscard]] bool is_postgresql() const { return in_.url().starts_with("postgresql:"); }
    [[nodiscard]] const std::string& account() const noexcept { return account_; }
    tool::answer run(const tool::arguments& command) const {
        return tool::rowlock(in_(command),
                             {.variables = {{"ROWLOCK_URL", with_user(in_.url(), name_)}}});
    }
    [[nodiscard]] json examine() const {
        const auto got = run({"doctor", "--json"});
        REQUIRE(json::accept(got.out));
        return json::parse(got.out);
    }

private:
    const tool::tables& in_;
    std::string name_, account_;
};

}  // namespace

TEST_CASE("the rights that `migrate --print-grants` prints are all that a client needs") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto in = tool::server_tables(which);
        if (!in) continue;
        CAPTURE(std::string{in->name()});
        const granted_user client{*in};
        CHECK(verdict(client.examine(), "rights") == "ok");
        CHECK(client.run({"run", "a", "--", "true"}).code == 0);
        const auto grant = json::parse(client.run({"acquire", "--json", "--for", "1h", "a"}).out);
        tool::process waiting{tool::command_line((*in)({"run", "a", "--", "true"})),
                              in->in_environment()};
        REQUIRE(in->queue_becomes(1, "a"));
        CHECK(json::parse(client.run({"show", "--json", "a"}).out)["waiting"] == 1);
        CHECK(client.run({"release", "a", grant["grant_id"]}).code == 0);
        CHECK(waiting.wait() == 0);
        CHECK(client.run({"acquire", "--for", "1h", "a"}).code == 0);
        CHECK(client.run({"break", "--now", "--yes", "a"}).code == 0);
        CHECK(client.run({"reap"}).code == 0);
        CHECK(client.run({"ls", "--all"}).code == 0);
        // Each of them is needed (control: one of them).
        execute(in->url(), "revoke delete on " + in->prefix() + "lock from " + client.account());
        CHECK(verdict(client.examine(), "rights") == "fail");
    }
    const auto sqlite = tool::rowlock({"migrate", "--print-grants", "me", "--dialect", "sqlite"});
    CHECK(sqlite.code == 0);
    CHECK(sqlite.out.starts_with("-- SQLite has no roles"));
    const auto quoted =
        tool::rowlock({"migrate", "--print-grants", "o'clock@10.%", "--dialect", "mysql"});
    CHECK(quoted.out.find("to 'o''clock'@'10.%';\n") != std::string::npos);
    CHECK(tool::rowlock({"migrate", "--print-grants", "a\nb", "--dialect", "mysql"}).code == 64);
}

TEST_CASE("the doctor finds all rights where transactions are read-only by default") {
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    const granted_user client{*in};
    execute(in->url(),
            "alter role " + client.account() + " set default_transaction_read_only = on");
    CHECK(client.run({"run", "a", "--", "true"}).code == 0);
    const auto report = client.examine();
    CHECK(verdict(report, "rights") == "ok");
    CHECK(verdict(report, "role") == "warn");
    CHECK(report["ok"] == true);
}

TEST_CASE("the doctor reports that a server accepts no writes, and no missing right") {
    const auto server = support::own_server::start(support::server::mariadb);
    if (!server) return;
    rowlock::migrate(rowlock::open(server->url()));
    execute(server->url(), "create user plain@'%' identified by 'one of the tests'");
    execute(server->url(), "grant all on rowlock.* to plain@'%'");
    auto url = server->url();
    const auto user = url.find("//") + 2;
    url.replace(user, url.find('@') - user, "plain:one%20of%20the%20tests");
    const auto run = [&](const tool::arguments& words) {
        return tool::rowlock(words, {.variables = {{"ROWLOCK_URL", url}}});
    };
    CHECK(run({"doctor"}).code == 0);
    execute(server->url(), "set global read_only = 1");
    const auto got = run({"doctor", "--json"});
    CHECK(got.code == 1);
    REQUIRE(json::accept(got.out));
    const auto report = json::parse(got.out);
    CHECK(report["ok"] == false);
    CHECK(verdict(report, "role") == "fail");
    CHECK(verdict(report, "leases") == "ok");
    CHECK(got.out.find("read-only, as a replica is") != std::string::npos);
    CHECK(got.out.find("not tried: this connection accepts no writes") != std::string::npos);
    CHECK(got.out.find("missing") == std::string::npos);
    const auto refused = run({"run", "--wait", "0", "a", "--", "true"});
    CHECK(refused.code == 77);
    CHECK(refused.err.find("connect to the primary") != std::string::npos);
}

TEST_CASE("the doctor warns of a SQLite file that others may write or that a power cut may undo") {
    const auto in = tool::sqlite_tables();
    CHECK(verdict(examine(*in, 0), "file") == "ok");
    REQUIRE(chmod(in->url().substr(7).c_str(), 0664) == 0);
    CHECK(verdict(examine(*in, 0), "file") == "warn");
    const auto got = tool::rowlock(
        {"doctor", "--json"}, {.variables = {{"ROWLOCK_URL", in->url() + "?synchronous=normal"}}});
    CHECK(verdict(json::parse(got.out), "durability") == "warn");
}

TEST_CASE("the doctor warns of queues full of dead waiters") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const bool postgresql = std::string{in->name()} == "PostgreSQL";
        std::string rows;
        for (int i = 1; i <= 100; ++i) {
            rows += (i == 1 ? "('a', 1, " : ", ('a', 1, ") + std::to_string(i) + ", " +
                    (postgresql ? "clock_timestamp()" : "1") + ")";
        }
        execute(in->url(), "insert into " + in->prefix() +
                               "ticket (name, session, grant_id, enqueued_at) values " + rows);
        const auto report = examine(*in, 0);
        CHECK(verdict(report, "queues") == "warn");
        CHECK(report.dump().find("100 waiters, 100 of them dead") != std::string::npos);
        CHECK(in->run({"reap"}).code == 0);
        CHECK(verdict(examine(*in, 0), "queues") == "ok");
    }
}

// shows: promise-12
TEST_CASE("the doctor finds a counter that is not the sum of its holds, and the reaper mends it") {
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        REQUIRE(in->run({"semaphore", "set", "api", "3"}).code == 0);
        CHECK(verdict(examine(*in, 0), "semaphores") == "ok");
        execute(in->url(), "update " + in->prefix() + "lock set used = 2");
        const auto report = examine(*in, 1);
        CHECK(verdict(report, "semaphores") == "fail");
        REQUIRE(in->run({"reap"}).code == 0);
        CHECK(verdict(examine(*in, 0), "semaphores") == "ok");
    }
}

TEST_CASE("the doctor warns of schemas on the search path in which other roles may create") {
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    const auto open_schema = in->prefix() + "open";
    const auto shared_schema = in->prefix() + "shared";
    const auto role = in->prefix() + "builder";
    execute(in->url(), "create schema " + open_schema + "; create schema " + shared_schema +
                           "; create role " + role + "; grant create on schema " + open_schema +
                           " to public; grant create on schema " + shared_schema + " to " + role);
    const auto look = [&](const std::string& path) {
        const auto mark = in->url().find('?') == std::string::npos ? "?" : "&";
        const auto got = tool::rowlock({"doctor", "--json", "--prefix", in->prefix(), "--url",
                                        in->url() + mark + "options=-csearch_path%3D" + path});
        CHECK(got.code == 0);
        const auto report = json::parse(got.out);
        for (const auto& each : report["checks"]) {
            if (each["check"] == "search path") {
                return verdict(report, "search path") + ": " + each["seen"].get<std::string>();
            }
        }
        return std::string{"not checked"};
    };
    CHECK(look("public").starts_with("ok"));
    CHECK(look("public," + open_schema) ==
          "warn: every role (PUBLIC) may create in schema " + open_schema);
    CHECK(look("public," + shared_schema) ==
          "warn: role " + role + " may create in schema " + shared_schema);
    execute(in->url(), "drop schema " + open_schema + "; drop schema " + shared_schema +
                           "; drop role " + role);
}

TEST_CASE("the doctor distinguishes a transaction pooler from a session pooler") {
    using support::pgbouncer;
    const auto in = tool::server_tables(support::server::postgresql);
    if (!in) return;
    const auto look = [&](const std::string& url) {
        const auto got =
            tool::rowlock((*in)({"doctor", "--json"}), {.variables = {{"ROWLOCK_URL", url}}});
        CAPTURE(got.err);
        REQUIRE(json::accept(got.out));
        return json::parse(got.out);
    };
    if (const auto pooler = pgbouncer::start(pgbouncer::pool_mode::transaction)) {
        const auto undeclared = look(pooler->url());
        CHECK(verdict(undeclared, "pooler") == "fail");
        CHECK(verdict(undeclared, "wake-ups") == "warn");
        const auto told = look(pooler->url() + "?rowlock_pooler=transaction");
        CHECK(verdict(told, "pooler") == "ok");
        CHECK(verdict(told, "wake-ups") == "warn");
        CHECK(told["ok"] == true);
    }
    if (const auto pooler = pgbouncer::start(pgbouncer::pool_mode::session)) {
        const auto report = look(pooler->url());
        CHECK(verdict(report, "pooler") == "ok");
        CHECK(verdict(report, "wake-ups") == "ok");
        CHECK(report.dump().find("pools sessions") != std::string::npos);
    }
    CHECK(verdict(look(in->url()), "pooler") == "ok");
}

TEST_CASE(
    "the doctor reports the server's identity, and tables that were last used on another server") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto in = tool::server_tables(which);
        if (!in) continue;
        CAPTURE(std::string{in->name()});
        CHECK(verdict(examine(*in, 0), "identity") == "ok");
        execute(in->url(), "update " + in->prefix() + "token_floor set server_identity = 'before'");
        const auto report = examine(*in, 0);
        CHECK(verdict(report, "identity") == "warn");
        CHECK(report.dump().find("last used on before") != std::string::npos);
    }
}

TEST_CASE("the doctor reports the least ttl for the link, and warns of sessions that have less") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto in = tool::server_tables(which);
        if (!in) continue;
        CAPTURE(std::string{in->name()});
        CHECK(verdict(examine(*in, 0), "least ttl") == "ok");
        const bool postgresql = which == support::server::postgresql;
        execute(in->url(), "insert into " + in->prefix() +
                               "session (id, owner, host, pid, program, ttl_us, expires_at, "
                               "opened_at) values (1, 'x', '', 1, '', 100, " +
                               (postgresql ? "now(), now())" : "1, 1)"));
        const auto report = examine(*in, 0);
        CHECK(verdict(report, "least ttl") == "warn");
        CHECK(report.dump().find("1 sessions have less") != std::string::npos);
    }
}

TEST_CASE("the doctor fails on tables that a crash empties, and says how to mend each") {
    for (const auto which : {support::server::postgresql, support::server::mariadb}) {
        const auto in = tool::server_tables(which);
        if (!in) continue;
        CAPTURE(std::string{in->name()});
        CHECK(verdict(examine(*in, 0), "tables") == "ok");
        const bool postgresql = which == support::server::postgresql;
        for (const auto* table : {"lock", "token_floor"}) {
            execute(in->url(), "alter table " + in->prefix() + table +
                                   (postgresql ? " set unlogged" : " engine = MyISAM"));
        }
        const auto report = examine(*in, 1);
        CHECK(verdict(report, "tables") == "fail");
        CHECK(report.dump().find(in->prefix() + "token_floor " +
                                 (postgresql ? "set logged" : "engine = InnoDB")) !=
              std::string::npos);
        for (const auto& each : report["checks"]) {
            if (each["check"] != "tables") continue;
            const std::string advice = each["advice"];
            // The commands after the colon, one after the other.
            auto commands = advice.substr(advice.rfind(": ") + 2);
            for (auto end = commands.find("; "); end != std::string::npos;
                 end = commands.find("; ")) {
                execute(in->url(), commands.substr(0, end));
                commands.erase(0, end + 2);
            }
            execute(in->url(), commands);
        }
        CHECK(verdict(examine(*in, 0), "tables") == "ok");
    }
}

TEST_CASE("the doctor warns of a SQLite file that a restart of the machine empties") {
    const auto in = tool::sqlite_tables();
    const std::string file = "/dev/shm/" + in->prefix() + std::to_string(getpid()) + ".db";
    const tool::setting at{.variables = {{"ROWLOCK_URL", "sqlite:" + file}}};
    REQUIRE(tool::rowlock({"migrate"}, at).code == 0);
    const auto got = tool::rowlock({"doctor", "--json"}, at);
    CHECK(got.code == 0);
    CHECK(verdict(json::parse(got.out), "tables") == "warn");
    for (const char* end : {"", "-wal", "-shm", "-turns"}) unlink((file + end).c_str());
}

TEST_CASE("the doctor names a transaction that was prepared and forgotten") {
    const auto in = tool::server_tables(support::server::mariadb);
    if (in) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
        const std::string id = "'" + in->prefix() + "g'";
        {
            const auto db = rowlock::open(in->url()).connect(deadline);
            db->query("xa start " + id, deadline);
            db->query("update " + in->prefix() + "token_floor set floor = floor + 1", deadline);
            db->query("xa end " + id, deadline);
            db->query("xa prepare " + id, deadline);
        }
        const auto report = examine(*in, 0);
        execute(in->url(), "xa rollback " + id);
        CHECK(verdict(report, "prepared") == "warn");
        CHECK(report.dump().find("xa rollback " + id + ",'',1") != std::string::npos);
    }
    const auto server = support::own_server::start(
        support::server::postgresql, {.arguments = {"-c", "max_prepared_transactions=2"}});
    if (!server) return;
    const tool::setting at{.variables = {{"ROWLOCK_URL", server->url()}}};
    REQUIRE(tool::rowlock({"migrate"}, at).code == 0);
    CHECK(verdict(json::parse(tool::rowlock({"doctor", "--json"}, at).out), "prepared") == "ok");
    execute(server->url(),
            "begin; select 1 from rowlock_session for share; prepare transaction 'forgotten'");
    const auto report = json::parse(tool::rowlock({"doctor", "--json"}, at).out);
    CHECK(verdict(report, "prepared") == "warn");
    CHECK(report.dump().find("rollback prepared 'forgotten'") != std::string::npos);
}

TEST_CASE("the doctor names the transaction that keeps the queue of notifications long") {
    const auto server = support::own_server::start(support::server::postgresql);
    if (!server) return;
    const tool::setting at{.variables = {{"ROWLOCK_URL", server->url()}}};
    REQUIRE(tool::rowlock({"migrate"}, at).code == 0);
    CHECK(verdict(json::parse(tool::rowlock({"doctor", "--json"}, at).out), "notifications") ==
          "ok");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    const auto listener = rowlock::open(server->url()).connect(deadline);
    listener->query("listen x", deadline);
    listener->query("begin", deadline);
    const auto process = listener->query("select pg_backend_pid()", deadline).integer(0, 0);
    for (int i = 0; i < 3; ++i) {
        execute(server->url(),
                "do $$ begin for g in 1 .. 4000 loop perform pg_notify('x', repeat('a', 7980) || "
                "g); end loop; end $$");
    }
    const auto report = json::parse(tool::rowlock({"doctor", "--json"}, at).out);
    CHECK(verdict(report, "notifications") == "warn");
    CHECK(report.dump().find("process " + std::to_string(process) + ",") != std::string::npos);
    CHECK(verdict(report, "wake-ups") == "warn");
    const auto metrics = tool::rowlock({"metrics"}, at).out;
    CHECK(metrics.find("\nrowlock_database_notification_queue_ratio 0.01") != std::string::npos);
    CHECK(metrics.find("\nrowlock_database_oldest_transaction_seconds{database=\"") !=
          std::string::npos);
}
