#pragma once

#include <rowlock/sql/connection.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

namespace support {

/// Now plus a generous bound for one statement, long enough for the slowest machine. The test's own
/// time limit ends a call that hangs.
[[nodiscard]] inline rowlock::sql::deadline soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds{60};
}

/// Waits until `condition` holds, with frequent checks: each a tenth of the time so far after the
/// one before, at least 2 and at most 25 ms. False after `limit`. For an event in another thread or
/// process, which ends the wait. The limit only ends a failed test.
template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = std::chrono::seconds{20}) {
    using namespace std::chrono_literals;
    const auto begin = std::chrono::steady_clock::now();
    while (!condition()) {
        const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begin;
        if (waited > limit) return false;
        std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(waited / 10, 2ms, 25ms));
    }
    return true;
}

/// The time limit of a test's wait for a grant: longer than any disk has stalled.
constexpr std::chrono::seconds patience{30};

/// The least cost of several runs of `action`, which returns a time or a count: a busy machine may
/// raise that of one run, but hardly of all, and an action that costs too much does so each time.
template <typename Cost, typename Action>
auto at_best(const Cost& bound, const Action& action) {
    constexpr int tries = 10;
    auto best = action();
    for (int i = 1; i < tries && best >= bound; ++i) best = std::min(best, action());
    return best;
}

}  // namespace support
