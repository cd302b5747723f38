#pragma once

#include "base/jitter.hpp"
#include <rowlock/sql/connection.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

namespace rowlock::driver {

/// Pauses between two attempts at SQLite's write lock, for a random time from half a millisecond to
/// ten, so that none of many waiters starves. (SQLite's own back-off grows to 100 ms while
/// newcomers barge in.) Returns false, at once, if the deadline has passed. `attempt` counts from
/// 0.
inline bool pause_for_lock(int attempt, sql::deadline until) {
    using namespace std::chrono;
    constexpr microseconds shortest{500};
    constexpr microseconds longest{10'000};
    const auto left = until - steady_clock::now();
    if (left <= steady_clock::duration::zero()) return false;
    const microseconds grown = std::min(longest, shortest * (2 << std::min(attempt, 10)));
    std::this_thread::sleep_for(
        std::min<steady_clock::duration>(left, base::random_between(shortest, grown)));
    return true;
}

}  // namespace rowlock::driver
