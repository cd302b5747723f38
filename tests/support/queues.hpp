#pragma once

#include "support/lock_database.hpp"

#include <cstdint>

namespace support {

/// Until so many tickets stand.
inline bool places(lock_database& database, std::int64_t count) {
    return eventually(
        [&] { return database.number("select count(*) from rowlock_waiter") == count; });
}

inline bool nobody_holds(lock_database& database) {
    return eventually([&] {
        return database.number("select count(*) from rowlock_lease where session is not null") == 0;
    });
}

}  // namespace support
