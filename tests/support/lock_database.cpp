#include "support/lock_database.hpp"

#include "sql/table_names.hpp"
#include "support/memory_folder.hpp"
#include "support/server_address.hpp"
#include "support/servers.hpp"
#include "support/unhurried.hpp"
#include <rowlock/driver/soci.hpp>
#include <rowlock/open.hpp>

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

namespace support {

using namespace rowlock;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

const simulated_world* simulation = nullptr;

namespace {

/// A prefix that differs between processes that share a server and between cases of one.
std::string fresh_prefix() {
    static std::atomic<int> count{0};
    return "t" + std::to_string(getpid()) + "_" + std::to_string(++count) + "_";
}

std::string fresh_folder() {
    std::string pattern = memory_folder() + "/rowlock-test-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
    return pattern;
}

std::string soci_connect_string() {
    const auto server = contract::address_of(server::mariadb);
    return "host=" + server.host + " port=" + std::to_string(server.port) + " user=" + server.user +
           " password=" + server.password + " db=" + server.database;
}

/// The back end's URL. Empty if the server is missing.
std::string url_of_backend(backend which, const std::string& folder) {
    switch (which) {
        case backend::sqlite:
        case backend::soci_sqlite:
            return mysql_alone() ? "" : "sqlite:" + folder + "/locks.db";
        case backend::postgresql:
        case backend::soci_postgresql:
            return url_of(server::postgresql).value_or("");
        case backend::mariadb:
        case backend::soci_mariadb:
            return url_of(server::mariadb).value_or("");
        case backend::simulated:
        case backend::simulated_server:
            break;
    }
    return {};
}

sql::connection_source source_of(backend which, const std::string& url) {
    switch (which) {
        case backend::soci_sqlite:
            return rowlock::soci::open("sqlite3", "dbname=" + url.substr(7) + " timeout=10");
        case backend::soci_postgresql:
            return rowlock::soci::open("postgresql", url);
        case backend::soci_mariadb:
            return rowlock::soci::open("mysql", soci_connect_string());
        default:
            return open(url);
    }
}

}  // namespace

const char* to_string(backend which) {
    switch (which) {
        case backend::sqlite:
            return "SQLite";
        case backend::postgresql:
            return "PostgreSQL";
        case backend::mariadb:
            return mysql_alone() ? "MySQL" : "MariaDB";
        case backend::soci_sqlite:
            return "SQLite through SOCI";
        case backend::soci_postgresql:
            return "PostgreSQL through SOCI";
        case backend::soci_mariadb:
            return mysql_alone() ? "MySQL through SOCI" : "MariaDB through SOCI";
        case backend::simulated:
        case backend::simulated_server:
            return "simulated time";
    }
    return "?";
}

bool is_chosen(backend which) {
    if (simulation != nullptr) return which == backend::simulated;
    const bool soci = wanted_driver() == "soci";
    switch (which) {
        case backend::sqlite:
        case backend::postgresql:
        case backend::mariadb:
            return !soci;
        case backend::soci_sqlite:
        case backend::soci_postgresql:
        case backend::soci_mariadb:
            return soci;
        case backend::simulated:
        case backend::simulated_server:
            return false;
    }
    return true;
}

std::vector<backend> for_a_client() {
    using enum backend;
    if (wanted_driver() == "every") return for_simulation();
    if (simulation != nullptr || mysql_alone() || wanted_driver() == "soci") return {};
    return {postgresql};
}

std::vector<backend> for_simulation() {
    using enum backend;
    if (simulation != nullptr) return {simulated};
    if (wanted_driver() != "every") return {};
    if (mysql_alone()) return {mariadb};
    return {sqlite, postgresql, mariadb};
}

lock_database::lock_database(backend which) : which_{which} {
    if (which == backend::simulated || which == backend::simulated_server) {
        auto opened = simulation->open(which == backend::simulated_server);
        simulated_ = std::move(opened.tables);
        source_ = std::move(opened.source);
        prefix_ = source_->tables().prefix;
    } else {
        prefix_ = fresh_prefix();
        folder_ = fresh_folder();
        url_ = url_of_backend(which, folder_);
        if (url_.empty()) return;
        source_ = source_of(which, url_).with_tables({.prefix = prefix_});
        migrate(*source_);
    }
    protocols_.emplace(sql::statement_set{speaks(), {.tables = source_->tables()}});
    admin_ = source_->connect(soon());
}

lock_database::~lock_database() {
    admin_.reset();
    if (simulated_) {
        simulated_.reset();
    } else if (source_ && !url_.starts_with("sqlite:")) {  // a file goes with its folder
        try {
            migrate(*source_, {}, 0);
        } catch (const std::exception& failure) {
            MESSAGE("a test's tables were not removed: ", failure.what());
        }
    }
    if (folder_.empty()) return;
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

sql::connection_source lock_database::at(const std::string& url) const {
    return open(url).with_tables(source_->tables());
}

client_options lock_database::options(client_options options) const {
    if (options.statement_timeout == client_options{}.statement_timeout) {
        options = unhurried(std::move(options));
    }
    // All clients of a test are on one machine, and most tests are about the database's wake-ups. A
    // test of datagrams asks for them.
    if (speaks() != sql::dialect::sqlite && options.wake_ups == wakeup_mode::automatic) {
        options.wake_ups = wakeup_mode::database;
    }
    return options;
}

client_options lock_database::watchful(client_options options) const {
    options.ttl = 1min;
    options.heartbeat = 300ms;
    options.margin = 100ms;
    return this->options(std::move(options));
}

reaper_options lock_database::reaping(milliseconds retention, milliseconds grace) const {
    return {
        .retention = retention,
        .grace = grace,
        .statement_timeout = std::min<milliseconds>({retention / 10, grace / 2, unhurried_limit})};
}

std::unique_ptr<sql::connection> lock_database::connect() const {
    auto made = source_->connect(soon());
    protocol().sessions().set_up(*made, unhurried_limit, soon());
    return made;
}

sql::result lock_database::run(const std::string& sql) {
    return admin_->query(sql::qualify(sql, speaks(), source_->tables()), soon());
}

std::int64_t lock_database::number(const std::string& sql) {
    return run(sql).integer(0, 0);
}

void lock_database::write_late_grant(const std::string& name, session_id session,
                                     grant_id grant_id) {
    std::string sql =
        "insert into rowlock_lock (name, token, session, grant_id, changed_at) values ('";
    sql.append(name).append("', 7, ").append(to_string(session)).append(", ");
    sql.append(to_string(grant_id)).append(", ");
    sql.append(speaks() == rowlock::sql::dialect::postgresql ? "clock_timestamp())" : "0)");
    run(sql);
}

}  // namespace support
