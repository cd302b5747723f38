#pragma once

#include "driver/driver_fixture.hpp"

namespace contract {

struct sqlite_fixture {
    static constexpr const char* name = "SQLite3";
    static constexpr rowlock::sql::dialect speaks = rowlock::sql::dialect::sqlite;
    static constexpr driver_limits limits{.server = false, .first_round_trips = 1};
    static bool available() { return true; }
    static rowlock::sql::connection_source source();
    static rowlock::sql::connection_source source_with(const server_change& change);
    static std::uint16_t server_port();
    static std::unique_ptr<borrowed_handle> borrow();
};

static_assert(driver_fixture<sqlite_fixture>);

}  // namespace contract
