#pragma once

#include "driver/driver_fixture.hpp"

namespace contract {

struct connector_cpp_fixture {
    static constexpr const char* name = "Connector/C++";
    static constexpr rowlock::sql::dialect speaks = rowlock::sql::dialect::mysql;
    static constexpr driver_limits limits{.survives_new_columns = false};
    static bool available();
    static rowlock::sql::connection_source source();
    static rowlock::sql::connection_source source_with(const server_change& change);
    static std::uint16_t server_port();
    static std::unique_ptr<borrowed_handle> borrow();
};

static_assert(driver_fixture<connector_cpp_fixture>);

}  // namespace contract
