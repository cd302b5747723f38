#pragma once

#include <rowlock/sql/connection.hpp>

#include <chrono>
#include <thread>

namespace support {

/// Now plus a generous bound for one statement: long enough for the slowest machine. A call that
/// hangs is caught by the test's own time limit.
[[nodiscard]] inline rowlock::sql::deadline soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds{20};
}

/// Waits until `condition` holds, looking often; false after `limit`. For what another thread or
/// process must bring about: the wait ends with the event, the limit only ends a failed test.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = std::chrono::seconds{20}) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    return true;
}

}  // namespace support
