#pragma once

#include "driver/driver_fixture.hpp"

namespace contract {

struct libpq_fixture {
    static constexpr const char* name = "libpq";
    static constexpr rowlock::sql::dialect speaks = rowlock::sql::dialect::postgresql;
    static constexpr driver_limits limits{.nul_in_text = false};
    static bool available();
    static rowlock::sql::connection_source source();
    static rowlock::sql::connection_source source_with(const server_change& change);
    static std::uint16_t server_port();
    static std::unique_ptr<borrowed_handle> borrow();
};

static_assert(driver_fixture<libpq_fixture>);

}  // namespace contract
