#pragma once

#include "support/lock_database.hpp"
#include "support/waits.hpp"
#include <rowlock/client.hpp>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace support {

/// Waits until there are that many tickets.
inline bool places(lock_database& database, std::int64_t count) {
    return eventually(
        [&] { return database.number("select count(*) from rowlock_waiter") == count; });
}

inline bool nobody_holds(lock_database& database) {
    return eventually([&] {
        return database.number("select count(*) from rowlock_lease where session is not null") == 0;
    });
}

/// Waits in the queue like acquire(), with a time limit: a missing grant, or a check that failed
/// while a thread still waits, must fail the test and not hang the program.
inline rowlock::lease acquire_soon(rowlock::client& who, const std::string& name,
                                   const rowlock::acquire_options& options = {}) {
    auto got = who.try_acquire_for(name, patience, options);
    if (!got) throw std::runtime_error{"the turn for " + name + " did not come"};
    return std::move(*got);
}

}  // namespace support
