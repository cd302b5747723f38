#pragma once

#include "driver/driver_fixture.hpp"

namespace contract {

// SOCI cannot interrupt a statement: no deadline_slack.

struct soci_postgresql_fixture {
    static constexpr const char* name = "SOCI, postgresql";
    static constexpr rowlock::sql::dialect speaks = rowlock::sql::dialect::postgresql;
    // libpq counts connect_timeout in seconds, two at least.
    static constexpr driver_limits limits{.deadline_slack = std::nullopt,
                                          .connect_slack = std::chrono::milliseconds{2500},
                                          .nul_in_text = false};
    static bool available();
    static rowlock::sql::connection_source source();
    static rowlock::sql::connection_source source_with(const server_change& change);
    static std::uint16_t server_port();
    static std::unique_ptr<borrowed_handle> borrow();
};

struct soci_mysql_fixture {
    static constexpr const char* name = "SOCI, mysql";
    static constexpr rowlock::sql::dialect speaks = rowlock::sql::dialect::mysql;
    static constexpr driver_limits limits{.deadline_slack = std::nullopt,
                                          .connect_slack = std::chrono::milliseconds{1500},
                                          .first_round_trips = 1};
    static bool available();
    static rowlock::sql::connection_source source();
    static rowlock::sql::connection_source source_with(const server_change& change);
    static std::uint16_t server_port();
    static std::unique_ptr<borrowed_handle> borrow();
};

struct soci_sqlite3_fixture {
    static constexpr const char* name = "SOCI, sqlite3";
    static constexpr rowlock::sql::dialect speaks = rowlock::sql::dialect::sqlite;
    static constexpr driver_limits limits{
        .server = false, .deadline_slack = std::nullopt, .first_round_trips = 1};
    static bool available() { return true; }
    static rowlock::sql::connection_source source();
    static rowlock::sql::connection_source source_with(const server_change& change);
    static std::uint16_t server_port();
    static std::unique_ptr<borrowed_handle> borrow();
};

static_assert(driver_fixture<soci_postgresql_fixture>);
static_assert(driver_fixture<soci_mysql_fixture>);
static_assert(driver_fixture<soci_sqlite3_fixture>);

}  // namespace contract
