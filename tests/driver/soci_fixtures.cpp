#include "driver/soci_fixtures.hpp"

#include "driver/sqlite_path.hpp"
#include "support/server_address.hpp"
#include <rowlock/driver/soci.hpp>

#include <soci/soci.h>

#include <stdexcept>

namespace contract {
namespace {

// Opens a session as an application does: by names, which loads the backend at run time.
class soci_handle final : public borrowed_handle {
public:
    soci_handle(const std::string& backend, const std::string& connect_string)
        : session_{backend, connect_string} {}

    std::unique_ptr<rowlock::sql::connection> ref() override {
        return std::make_unique<rowlock::soci::connection_ref>(session_);
    }

    std::string run(const std::string& text) override {
        std::string cell;
        soci::indicator indicator = soci::i_ok;
        soci::statement once{session_};
        once.exchange(soci::into(cell, indicator));
        once.alloc();
        once.prepare(text, soci::details::st_one_time_query);
        once.define_and_bind();
        once.execute(true);
        return cell;
    }

private:
    soci::session session_;
};

server_address changed(support::server which, const server_change& change) {
    server_address server = address_of(which);
    if (change.password) server.password = *change.password;
    if (change.database) server.database = *change.database;
    if (change.port) {
        server.host = "127.0.0.1";
        server.port = *change.port;
    }
    return server;
}

std::string pairs(const server_address& server, const std::string& database_key) {
    return "host=" + server.host + " port=" + std::to_string(server.port) + " user=" + server.user +
           " password='" + server.password + "' " + database_key + "=" + server.database;
}

std::string sqlite_string() {
    return "db=" + sqlite_path("soci.db") + " synchronous=normal";
}

}  // namespace

// --- PostgreSQL ---

bool soci_postgresql_fixture::available() {
    return support::url_of(support::server::postgresql).has_value();
}

rowlock::sql::connection_source soci_postgresql_fixture::source() {
    return rowlock::soci::open("postgresql", address_of(support::server::postgresql).url());
}

rowlock::sql::connection_source soci_postgresql_fixture::source_with(const server_change& change) {
    return rowlock::soci::open("postgresql",
                               pairs(changed(support::server::postgresql, change), "dbname"));
}

std::uint16_t soci_postgresql_fixture::server_port() {
    return address_of(support::server::postgresql).port;
}

// Given as pairs, since SOCI corrupts a URL without parameters.
std::unique_ptr<borrowed_handle> soci_postgresql_fixture::borrow() {
    return std::make_unique<soci_handle>("postgresql",
                                         pairs(address_of(support::server::postgresql), "dbname"));
}

// --- MySQL ---

bool soci_mysql_fixture::available() {
    return support::url_of(support::server::mariadb).has_value();
}

rowlock::sql::connection_source soci_mysql_fixture::source() {
    return source_with({});
}

rowlock::sql::connection_source soci_mysql_fixture::source_with(const server_change& change) {
    return rowlock::soci::open("mysql", pairs(changed(support::server::mariadb, change), "db"));
}

std::uint16_t soci_mysql_fixture::server_port() {
    return address_of(support::server::mariadb).port;
}

std::unique_ptr<borrowed_handle> soci_mysql_fixture::borrow() {
    return std::make_unique<soci_handle>("mysql",
                                         pairs(address_of(support::server::mariadb), "db"));
}

// --- SQLite ---

rowlock::sql::connection_source soci_sqlite3_fixture::source() {
    return rowlock::soci::open("sqlite3", sqlite_string());
}

rowlock::sql::connection_source soci_sqlite3_fixture::source_with(const server_change&) {
    throw std::logic_error{"SQLite has no server"};
}

std::uint16_t soci_sqlite3_fixture::server_port() {
    throw std::logic_error{"SQLite has no server"};
}

std::unique_ptr<borrowed_handle> soci_sqlite3_fixture::borrow() {
    return std::make_unique<soci_handle>("sqlite3", sqlite_string());
}

}  // namespace contract
