#pragma once

#include "support/lock_database.hpp"
#include "support/waits.hpp"
#include <rowlock/client.hpp>

#include <chrono>
#include <cstdint>
#include <future>
#include <stdexcept>
#include <string>
#include <utility>

namespace support {

/// Waits until there are that many tickets.
inline bool places(lock_database& database, std::int64_t count) {
    return eventually(
        [&] { return database.number("select count(*) from rowlock_ticket") == count; });
}

inline bool nobody_holds(lock_database& database) {
    return eventually([&] {
        return database.number("select count(*) from rowlock_lock where session is not null") == 0;
    });
}

template <typename T>
bool has_ended(const std::future<T>& call) {
    return call.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
}

/// Waits until the one entry is in the queues of that table. Or the call has ended already: a
/// machine that stalls may let the holder's short session end before the test cuts it off.
template <typename T>
bool enters_or_ends(lock_database& database, const std::future<T>& call, const std::string& table) {
    return eventually(
        [&] { return has_ended(call) || database.number("select count(*) from " + table) == 1; });
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
