// Nothing rests on a default of the server: each setting is made hostile where an administrator may
// change it, and everything works as before, with names of any script.

#include "support/at_end.hpp"
#include "support/event_log.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/own_server.hpp"
#include "support/processlist.hpp"
#include "support/servers.hpp"
#include "support/waits.hpp"
#include "tool/tool.hpp"
#include "view/past.hpp"
#include <rowlock/driver/postgresql.hpp>
#include <rowlock/driver/soci.hpp>
#include <rowlock/history.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <libpq-fe.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::kind_of;
using support::soon;

namespace {

/// Latin with an umlaut, Cyrillic, Chinese, an emoji: outside of latin1, and the last outside of
/// utf8mb3.
const std::vector<std::string> scripts{"käse", "замок", "锁", "🔒"};

/// A setting as an administrator makes it the default.
struct hostile {
    std::string name;
    std::string value;
    bool migrates = false;  ///< whether the tables are made under it, too
};

std::string words_of(const std::vector<hostile>& all) {
    std::string words;
    for (const auto& [name, value, migrates] : all) {
        words +=
            (words.empty() ? "" : ", ") + name + (name.starts_with("names") ? "" : " = ") + value;
    }
    return words;
}

/// In groups of settings that hold at once: none makes another harmless. Each name is once in a
/// group.
std::vector<std::vector<hostile>> in_groups(const std::vector<hostile>& all) {
    constexpr std::size_t largest = 5;
    std::vector<std::vector<hostile>> groups;
    for (const auto& each : all) {
        const auto fits = std::ranges::find_if(groups, [&](const auto& group) {
            return group.size() < largest &&
                   std::ranges::find(group, each.name, &hostile::name) == group.end();
        });
        (fits == groups.end() ? groups.emplace_back() : *fits).push_back(each);
    }
    return groups;
}

client_options patient() {
    return {.statement_timeout = 20s};
}

bool lists(client& locks, const std::string& name) {
    const auto all = locks.list();
    return std::ranges::any_of(
        all, [&](const lease_info& each) { return each.name == name && each.holder; });
}

void hold_a_lease(client& ours, client& theirs, const std::string& name) {
    auto held = ours.acquire(name);
    CHECK_FALSE(theirs.try_acquire(name));
    CHECK(lists(theirs, name));
    const auto first = held.token();
    held.release();
    held = ours.acquire(name);  // the client's own lease again
    CHECK(held.token() > first);
    CHECK_FALSE(theirs.try_acquire(name));
    held.release();
    CHECK(theirs.try_acquire(name));
}

void hold_counted(client& ours, client& theirs, const std::string& name) {
    shared_mutex mine{ours, "rw " + name};
    shared_mutex others{theirs, "rw " + name};
    {
        const auto reading = mine.acquire(lock_mode::shared);
        CHECK(others.try_acquire(lock_mode::shared));
        CHECK_FALSE(others.try_acquire(lock_mode::exclusive));
    }
    semaphore places{ours, "sem " + name};
    places.create(2);
    const auto both = places.acquire(2);
    CHECK_FALSE(semaphore{theirs, "sem " + name}.try_acquire());
}

void hold_several(client& ours, client& theirs) {
    const std::vector<lock_request> names{scripts.begin(), scripts.end()};
    const auto all = ours.acquire_all(names);
    for (const auto& name : scripts) CHECK_FALSE(theirs.try_acquire(name));
    CHECK_FALSE(theirs.try_acquire_all(names));
}

/// A waiter is served by the release.
void hand_over(client& ours, client& theirs) {
    auto held = ours.acquire(scripts[3]);
    std::thread waiting{[&] { CHECK(theirs.try_acquire_for(scripts[3], support::patience)); }};
    CHECK(support::eventually([&] {
        const auto seen = ours.list();
        return std::ranges::any_of(seen, [](const auto& each) { return each.waiting > 0; });
    }));
    held.release();
    waiting.join();
}

/// Everything that a client does.
void exercise(const sql::connection_source& source) {
    {
        client ours{source, patient()};
        client theirs{source, patient()};
        for (const auto& name : scripts) {
            CAPTURE(name);
            hold_a_lease(ours, theirs, name);
        }
        hold_counted(ours, theirs, scripts[3]);
        hold_several(ours, theirs);
        hand_over(ours, theirs);
    }
    const auto report = reap(source, {.statement_timeout = 20s});
    CAPTURE(to_string(report));
    for (const auto& name : scripts) {
        const auto all = read_history(source, {.name = name}).size();
        CHECK(all > 0);
        // What `rowlock history` reads.
        CHECK(view::read_past(source, {.name = name}).records.size() == all);
    }
}

/// What an administrator does, and a program that is used in a shell.
void administer(const std::string& url) {
    // Not as a DBA: the user of a client may own its tables.
    const auto run = [&](tool::arguments words, int code = 0) {
        words.insert(words.begin() + 1, {"--url", url});
        const auto got = tool::rowlock(words);
        CAPTURE(words.front());
        CAPTURE(got.out);
        CAPTURE(got.err);
        CHECK(got.code == code);
        return got.out;
    };
    run({"migrate"});
    run({"migrate", "--history", "on"});
    run({"doctor"});
    for (const auto& name : scripts) {
        run({"run", name, "--", "true"});
        CHECK(run({"history", name}).find(name) != std::string::npos);
    }
    CHECK(run({"ls", "--all"}).find(scripts[2]) != std::string::npos);
    run({"reap"});
}

std::string with_user(std::string url, const std::string& user, const std::string& database) {
    const auto begin = url.find("//") + 2;
    url.replace(begin, url.find('@') - begin, user + ":visitor");
    return url.substr(0, url.rfind('/') + 1) + database;
}

// --- MariaDB and MySQL ---------------------------------------------------------------------------

/// A server whose defaults the test may change, and a user to whom init_connect applies.
class mysql_defaults {
public:
    [[nodiscard]] static mysql_defaults* get() {
        static const auto shared = [] {
            std::unique_ptr<mysql_defaults> made{new mysql_defaults};
            // Nothing crashes here, and each migration would wait for the disk some fifty times.
            made->server_ =
                support::own_server::start(support::server::mariadb, {.arguments = arguments()});
            if (made->server_) made->prepare();
            return made;
        }();
        return shared->server_ ? shared.get() : nullptr;
    }

    /// The same, with a database whose tables were made before anything was hostile.
    [[nodiscard]] static mysql_defaults* with_tables() {
        auto* const server = get();
        if (server == nullptr) return nullptr;
        if (server->with_tables_.empty()) {
            server->renew_database();
            migrate(rowlock::open(server->url()));
            record_history(rowlock::open(server->url()), true);
            server->with_tables_ = server->database_;
        }
        server->database_ = server->with_tables_;
        return server;
    }

    void run(const std::string& sql) { admin_->query(sql, soon()); }
    [[nodiscard]] std::string url() const {
        return with_user(server_->url(), "visitor", database_);
    }
    [[nodiscard]] std::string admin_url() const {
        return server_->url().substr(0, server_->url().rfind('/') + 1) + database_;
    }
    /// A new database, and tables in it once somebody migrates.
    void renew_database() {
        database_ = "d" + std::to_string(++count_);
        run("create database " + database_);
        run("grant all on " + database_ + ".* to visitor");
    }

private:
    static std::vector<std::string> arguments() {
        std::vector<std::string> words{"--innodb-flush-log-at-trx-commit=0",
                                       "--innodb-flush-method=nosync", "--loose-debug-no-sync"};
        // Or only an administrator may make the triggers of the history.
        if (support::mysql_alone()) words.emplace_back("--log-bin-trust-function-creators=1");
        return words;
    }
    void prepare() {
        admin_ = rowlock::open(server_->url()).connect(soon());
        run("create user visitor identified by 'visitor'");
    }

    std::unique_ptr<support::own_server> server_;
    std::unique_ptr<sql::connection> admin_;
    std::string database_;
    std::string with_tables_;  ///< the name of that database
    int count_ = 0;
};

/// While it lives, new sessions have the setting.
class mysql_hostility {
public:
    mysql_hostility(mysql_defaults& server, const hostile& what, bool for_each_session)
        : server_{server}, what_{what}, for_each_session_{for_each_session} {
        if (for_each_session_) {
            server_.run("set global init_connect = \"set " + words_of({what}) + "\"");
        } else {
            server_.run("set @before = @@global." + what.name);
            server_.run("set global " + words_of({what}));
        }
    }
    /// Several at once, for each session.
    mysql_hostility(mysql_defaults& server, const std::vector<hostile>& all)
        : server_{server}, for_each_session_{true} {
        server_.run("set global init_connect = \"set " + words_of(all) + "\"");
    }
    mysql_hostility(const mysql_hostility&) = delete;
    mysql_hostility& operator=(const mysql_hostility&) = delete;
    ~mysql_hostility() {
        server_.run(for_each_session_ ? "set global init_connect = ''"
                                      : "set global " + what_.name + " = @before");
    }

private:
    mysql_defaults& server_;
    hostile what_;
    bool for_each_session_;
};

/// The rows of a table are divided among cases, each of a few seconds.
enum class part : unsigned char {
    migrating,  ///< what the tables are made under as well
    times,      ///< limits on time
    others,
};

part part_of(const hostile& what) {
    if (what.migrates) return part::migrating;
    return what.name.find("time") != std::string::npos ? part::times : part::others;
}

std::vector<hostile> hostile_to_mysql() {
    std::vector<hostile> all{
        {"sql_safe_updates", "1", true},
        {"sql_select_limit", "1", true},
        {"sql_mode", "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE'"},
        {"sql_mode", "''"},
        {"max_join_size", "1", true},
        {"completion_type", "'RELEASE'", true},
        {"completion_type", "'CHAIN'"},
        {"autocommit", "0"},
        {"time_zone", "'+05:30'"},
        {"sql_auto_is_null", "1"},
        {"sql_notes", "0"},
        {"div_precision_increment", "0"},
        {"max_sort_length", "8"},
        {"lc_messages", "'de_DE'"},
        {"wait_timeout", "2"},
        {"interactive_timeout", "2"},
        {"lock_wait_timeout", "1"},
        {"innodb_lock_wait_timeout", "1"},
        {"net_read_timeout", "1"},
        {"net_write_timeout", "1"},
        {"foreign_key_checks", "0"},
        {"unique_checks", "0"},
    };
    if (support::mysql_alone()) {
        all.insert(all.end(), {{"transaction_read_only", "1", true},
                               {"transaction_isolation", "'SERIALIZABLE'"},
                               {"max_execution_time", "1000"}});
    } else {
        all.insert(all.end(), {{"tx_read_only", "1", true},
                               {"tx_isolation", "'SERIALIZABLE'"},
                               {"sql_mode", "'ORACLE'", true},
                               {"sql_mode", "'EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT'", true},
                               {"max_statement_time", "1"},
                               {"idle_transaction_timeout", "1"},
                               {"idle_write_transaction_timeout", "1"},
                               {"idle_readonly_transaction_timeout", "1"},
                               {"check_constraint_checks", "0"},
                               {"alter_algorithm", "INSTANT", true}});
    }
    return all;
}

/// By init_connect alone: as a default of the server, these come from the client library.
std::vector<hostile> hostile_names() {
    const std::string other = support::mysql_alone() ? "utf8mb3_unicode_ci" : "utf8_unicode_ci";
    return {{"collation_connection", other},
            {"collation_connection", "latin1_swedish_ci"},
            {"collation_connection", "utf8mb4_unicode_ci"},
            {"names latin1", ""},
            {"names utf8mb4 collate utf8mb4_unicode_ci", ""},
            {"character_set_results", "latin1"},
            {"character_set_client", "latin1"},
            {"timestamp", "1"}};
}

void endure(mysql_defaults& server, const hostile& what, bool for_each_session) {
    CAPTURE(what.name);
    CAPTURE(what.value);
    CAPTURE(for_each_session);
    try {
        const mysql_hostility guard{server, what, for_each_session};
        if (what.migrates && for_each_session) {
            server.renew_database();
            migrate(rowlock::open(server.url()));
            record_history(rowlock::open(server.url()), true);
        }
        exercise(rowlock::open(server.url()));
    } catch (const error& failure) {
        FAIL_CHECK(what.name, " = ", what.value, ": ", failure.what(), " / ",
                   failure.server_message());
    }
}

void endure_together(mysql_defaults& server, const std::vector<hostile>& all) {
    const auto words = words_of(all);
    CAPTURE(words);
    try {
        const mysql_hostility guard{server, all};
        exercise(rowlock::open(server.url()));
    } catch (const error& failure) {
        FAIL_CHECK(words, ": ", failure.what(), " / ", failure.server_message());
    }
}

std::vector<hostile> hostile_to_mysql(part which) {
    auto all = hostile_to_mysql();
    std::erase_if(all, [&](const hostile& each) { return part_of(each) != which; });
    return all;
}

/// A session begins with a setting by both ways; init_connect comes later, and has the last word.
void endure_all(part which, bool for_each_session = true) {
    auto* const server = mysql_defaults::with_tables();
    if (server == nullptr) return;
    if (which == part::migrating) {
        for (const auto& each : hostile_to_mysql(which)) endure(*server, each, for_each_session);
    } else {
        for (const auto& group : in_groups(hostile_to_mysql(which))) {
            endure_together(*server, group);
        }
    }
}

// --- PostgreSQL ----------------------------------------------------------------------------------

class postgresql_defaults {
public:
    postgresql_defaults(const std::string& server, const std::string& options = "")
        : server_{server},
          name_{"settings_" + std::to_string(getpid()) + "_" + std::to_string(next())} {
        admin_ = rowlock::open(server).connect(soon());
        run("create role " + name_ + " login password 'visitor'");
        run("create database " + name_ + " owner " + name_ + options);
    }
    postgresql_defaults(const postgresql_defaults&) = delete;
    postgresql_defaults& operator=(const postgresql_defaults&) = delete;
    ~postgresql_defaults() {
        for (const auto* const what : {"database ", "role "}) {
            const std::string force = what[0] == 'd' ? " with (force)" : "";
            try {
                run("drop " + std::string{what} + name_ + force);
            } catch (const error& failure) {
                MESSAGE("left behind: ", failure.what(), failure.server_message());
            }
        }
    }

    void run(const std::string& sql) { admin_->query(sql, soon()); }
    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::string url() const { return with_user(server_, name_, name_); }
    [[nodiscard]] std::string soci() const {
        const std::string where = server_.substr(server_.find('@') + 1);
        const std::string port = where.substr(where.find(':') + 1);
        return "host=" + where.substr(0, where.find(':')) +
               " port=" + port.substr(0, port.find('/')) + " user=" + name_ +
               " password=visitor dbname=" + name_;
    }

private:
    static int next() {
        static int last = 0;
        return ++last;
    }

    std::string server_;
    std::string name_;
    std::unique_ptr<sql::connection> admin_;
};

const std::vector<hostile> hostile_to_postgresql{
    {"client_encoding", "latin1"},
    {"client_min_messages", "error"},
    {"default_transaction_isolation", "serializable"},
    {"default_transaction_read_only", "on"},
    {"default_transaction_deferrable", "on"},
    {"synchronous_commit", "off"},
    {"datestyle", "'german'"},
    {"intervalstyle", "'sql_standard'"},
    {"timezone", "'Asia/Kolkata'"},
    {"bytea_output", "escape"},
    {"array_nulls", "off"},
    {"standard_conforming_strings", "off"},
    {"backslash_quote", "off"},
    {"transform_null_equals", "on"},
    {"extra_float_digits", "-15"},
    {"quote_all_identifiers", "on"},
    {"statement_timeout", "2000"},
    {"lock_timeout", "1"},
    {"idle_in_transaction_session_timeout", "1000"},
    {"idle_session_timeout", "1500"},
    {"enable_indexscan", "off"},
};

/// The rows in turn for a role and for a database, and a driver each.
void endure_defaults(
    const std::string& whose,
    const std::function<sql::connection_source(const postgresql_defaults&)>& source_of) {
    const auto url = support::url_of(support::server::postgresql);
    if (!url) return;
    postgresql_defaults here{*url};
    migrate(rowlock::open(here.url()));
    record_history(rowlock::open(here.url()), true);
    bool ours = whose.starts_with("role");
    std::vector<hostile> half;
    for (const auto& each : hostile_to_postgresql) {
        if (std::exchange(ours, !ours)) half.push_back(each);
    }
    for (const auto& group : in_groups(half)) {
        const auto words = words_of(group);
        CAPTURE(words);
        try {
            for (const auto& each : group) {
                here.run("alter " + whose + here.name() + " set " + each.name + " = " + each.value);
            }
            exercise(source_of(here));
            here.run("alter " + whose + here.name() + " reset all");
        } catch (const error& failure) {
            FAIL_CHECK(words, ": ", failure.what(), " / ", failure.server_message());
        }
    }
}

}  // namespace

TEST_CASE("no default of MariaDB or MySQL, and no init_connect, changes what a lock does") {
    endure_all(part::others);
}

TEST_CASE("no limit on time of MariaDB or MySQL changes what a lock does") {
    endure_all(part::times);
}

TEST_CASE("no init_connect of MariaDB or MySQL changes which tables a migration makes") {
    endure_all(part::migrating);
}

TEST_CASE("what a server's default refuses to a migration changes nothing of a lock") {
    endure_all(part::migrating, false);
}

TEST_CASE("no character set and no collation of init_connect changes what a lock does") {
    auto* const server = mysql_defaults::with_tables();
    if (server == nullptr) return;
    for (const auto& each : hostile_names()) endure(*server, each, true);
}

TEST_CASE("a write that a locked table keeps past its deadline soon waits in the server no more") {
    auto* const server = mysql_defaults::get();
    if (server == nullptr) return;
    server->renew_database();
    migrate(rowlock::open(server->url()));
    client locks{rowlock::open(server->url()), {.statement_timeout = 1s}};
    const auto held = locks.acquire("kept");  // every connection has its settings
    const auto admin = rowlock::open(server->admin_url()).connect(soon());
    const auto waiting = [&] {
        return !support::processes(*admin, [](const auto& one) {
                    return one.user == "visitor" && one.state.starts_with("Waiting for ");
                }).empty();
    };
    admin->query("lock tables rowlock_session write", soon());
    CHECK_THROWS_AS(static_cast<void>(locks.try_acquire("other")), error);
    CHECK(support::eventually([&] { return !waiting(); }));
    admin->query("unlock tables", soon());
}

TEST_CASE("the doctor counts the replicas while a statement has a character that utf8mb3 lacks") {
    auto* const server = mysql_defaults::with_tables();
    if (server == nullptr) return;
    const auto admin = rowlock::open(server->admin_url()).connect(soon());
    const auto busy = rowlock::open(server->admin_url()).connect(soon());
    const auto id = busy->query("select connection_id()", soon()).integer(0, 0);
    const auto sleeps = std::async(std::launch::async, [&] {
        return kind_of([&] { busy->query("select sleep(50), '\xF4\x8F\xBF\xBF'", soon()); });
    });
    const support::at_end wake{[&] { server->run("kill query " + std::to_string(id)); }};
    REQUIRE(support::eventually(
        [&] { return support::processes_in(*admin, "User sleep", "\xF4\x8F\xBF\xBF") == 1; }));
    const auto shown = tool::rowlock({"doctor", "--url", server->admin_url()}).out;
    CAPTURE(shown);
    CHECK(shown.find("0 replica(s) seen") != std::string::npos);
}

TEST_CASE("of several hosts a replica is recognized, whatever a select may return") {
    auto* const server = mysql_defaults::get();
    if (server == nullptr) return;
    server->renew_database();
    // The same server twice, and read-only.
    auto url = server->url();
    const auto begin = url.find('@') + 1;
    const auto host = url.substr(begin, url.find('/', begin) - begin);
    url.insert(begin, host + ",");
    const mysql_hostility cut{*server, {"sql_select_limit", "1"}, true};
    CHECK_NOTHROW(migrate(rowlock::open(url)));
    const mysql_hostility replica{*server, {"read_only", "1"}, false};
    CHECK(kind_of([&] { static_cast<void>(schema_status(rowlock::open(url))); }) ==
          errc::database_unreachable);
    // One host alone says what to do.
    client locks{rowlock::open(server->url()), patient()};
    try {
        static_cast<void>(locks.try_acquire("job"));
        FAIL_CHECK("a read-only server has written");
    } catch (const error& failure) {
        CHECK(failure.kind() == errc::read_only);
        CHECK(std::string{failure.what()}.find("connect to the primary") != std::string::npos);
    }
}

TEST_CASE("the tool works beside hostile defaults of MariaDB and MySQL") {
    auto* const server = mysql_defaults::get();
    if (server == nullptr) return;
    server->renew_database();
    std::string all;
    for (const auto& each : hostile_to_mysql()) {
        if (each.name.find("timeout") != std::string::npos || each.name == "sql_mode") continue;
        all += each.name + " = " + each.value + ", ";
    }
    server->run("set global init_connect = \"set " + all +
                "names latin1, collation_connection = latin1_swedish_ci, sql_mode = "
                "'ANSI_QUOTES'\"");
    server->run("set global innodb_flush_log_at_trx_commit = 1");  // or the doctor objects
    administer(server->url());
    server->run("set global innodb_flush_log_at_trx_commit = 0");
    server->run("set global init_connect = ''");
}

TEST_CASE("no default of a PostgreSQL role changes what a lock does") {
    endure_defaults("role ", [](const postgresql_defaults& in) { return rowlock::open(in.url()); });
}

TEST_CASE("no default of a PostgreSQL database changes what a lock does through SOCI") {
    endure_defaults("database ", [](const postgresql_defaults& in) {
        return rowlock::soci::open("postgresql", in.soci());
    });
}

TEST_CASE("the tool works beside hostile defaults of a PostgreSQL role") {
    const auto url = support::url_of(support::server::postgresql);
    if (!url) return;
    postgresql_defaults here{*url};
    for (const auto& each : hostile_to_postgresql) {
        if (each.name.find("timeout") != std::string::npos) continue;
        here.run("alter role " + here.name() + " set " + each.name + " = " + each.value);
    }
    administer(here.url());
}

TEST_CASE("a PostgreSQL database that is not UTF8 is refused in one sentence") {
    const auto url = support::url_of(support::server::postgresql);
    if (!url) return;
    for (const std::string encoding : {"LATIN1", "EUC_JP", "SQL_ASCII"}) {
        CAPTURE(encoding);
        const postgresql_defaults here{
            *url, " encoding '" + encoding + "' locale 'C' template template0"};
        const auto refused = [&](const sql::connection_source& source) {
            try {
                migrate(source);
                return std::string{"made tables"};
            } catch (const error& failure) {
                CHECK(failure.kind() == errc::unsupported);
                return std::string{failure.what()};
            }
        };
        for (const auto& why : {refused(rowlock::open(here.url())),
                                refused(rowlock::soci::open("postgresql", here.soci()))}) {
            CHECK(why.find(encoding) != std::string::npos);
            CHECK(why.find("ENCODING 'UTF8'") != std::string::npos);
        }
        const auto shown = tool::rowlock({"doctor", "--url", here.url()});
        CHECK(shown.out.find("ENCODING 'UTF8'") != std::string::npos);
        // A handle of the caller's
        const auto conninfo = here.soci();
        const std::unique_ptr<PGconn, decltype(&PQfinish)> handle{PQconnectdb(conninfo.c_str()),
                                                                  &PQfinish};
        CHECK(kind_of([&] { postgresql::connection_ref{handle.get()}; }) == errc::unsupported);
    }
}

TEST_CASE("no limit on idle connections ends a heartbeat") {
    const auto hold = [](const std::string& url) {
        support::event_log events;
        auto options = patient();
        // A heartbeat each 3 s. A limit of 2 s leaves a busy machine time to state another one.
        options.ttl = 9s;
        options.on_event = events.callback();
        client locks{rowlock::open(url), options};
        const auto held = locks.acquire("idle");
        const auto beats = locks.stats().heartbeats;
        CHECK(support::eventually([&] { return locks.stats().heartbeats > beats; }));
        CHECK_FALSE(events.has(event_kind::heartbeat_failed));
        CHECK(held.held());
    };
    const auto shown = [](const std::string& url) {
        return tool::rowlock({"doctor", "--url", url}).out;
    };
    std::future<void> beside;  // both wait for heartbeats
    if (auto* const server = mysql_defaults::get()) {
        server->renew_database();
        migrate(rowlock::open(server->url()));
        beside = std::async(std::launch::async, [&hold, &shown, server] {
            const mysql_hostility guard{*server, {"wait_timeout", "2"}, true};
            hold(server->url());
            CHECK(shown(server->url()).find("wait_timeout = 2000 ms") != std::string::npos);
        });
    }
    if (const auto url = support::url_of(support::server::postgresql)) {
        postgresql_defaults here{*url};
        migrate(rowlock::open(here.url()));
        here.run("alter role " + here.name() + " set idle_session_timeout = 2000");
        hold(here.url());
        CHECK(shown(here.url()).find("idle_session_timeout = 2000 ms") != std::string::npos);
    }
    if (beside.valid()) beside.get();
}

TEST_CASE("names that differ in any byte are different locks, on every database") {
    const std::string umlaut = "k\xc3\xa4se";
    const std::string decomposed = "ka\xcc\x88se";
    const std::string longest = std::string(251, 'x') + "🔒";
    const std::vector<std::string> names{"kase",
                                         "Kase",
                                         umlaut,
                                         decomposed,
                                         "kase ",
                                         " kase",
                                         "KASE",
                                         "straße",
                                         "strasse",
                                         "🔒",
                                         "🔓",
                                         "?",
                                         "????",
                                         "замок",
                                         "Замок",
                                         "ı",
                                         "i",
                                         "ﬁ",
                                         "fi",
                                         "Å",
                                         "A\xcc\x8a",
                                         longest,
                                         longest.substr(0, 251),
                                         longest.substr(0, 250) + "y🔒"};
    for (const auto which : {ROWLOCK_ALL_BACKENDS}) {  // every driver keeps names as they are
        const support::lock_database database{which};
        if (!database.there()) continue;
        CAPTURE(support::to_string(which));
        client ours{database.source(), database.options()};
        client theirs{database.source(), database.options()};
        std::vector<lease> held;
        for (const auto& name : names) {
            CAPTURE(name);
            auto one = ours.try_acquire(name);
            REQUIRE(one);
            held.push_back(std::move(*one));
        }
        for (const auto& name : names) {
            CAPTURE(name);
            CHECK_FALSE(theirs.try_acquire(name));
        }
        const auto all = theirs.list({}, {.limit = 1000});
        for (const auto& name : names) {
            CAPTURE(name);
            CHECK(std::ranges::count(all, name, &lease_info::name) == 1);
        }
        CHECK(all.size() == names.size());
        for (const auto& name : names) {
            // A new counter for each, next to a byte that all share.
            if (name.size() < 255) CHECK(semaphore{ours, "s" + name}.create(1));
        }
    }
}
