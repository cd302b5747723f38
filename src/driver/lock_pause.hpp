#pragma once

#include <rowlock/sql/connection.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace rowlock::driver {

/// Pauses between two attempts at SQLite's write lock, for a random time from half a millisecond to
/// ten, so that none of many waiters starves. (SQLite's own back-off grows to 100 ms while
/// newcomers barge in.)
class lock_pause {
public:
    lock_pause() : random_{std::random_device{}()} {}

    /// Returns false, at once, if the deadline has passed. `attempt` counts from 0.
    bool operator()(int attempt, sql::deadline until) {
        using namespace std::chrono;
        const auto left = until - steady_clock::now();
        if (left <= steady_clock::duration::zero()) return false;
        const microseconds longest = std::min(longest_, first_ * (2 << std::min(attempt, 10)));
        std::uniform_int_distribution<microseconds::rep> pick{first_.count(), longest.count()};
        std::this_thread::sleep_for(
            std::min<steady_clock::duration>(left, microseconds{pick(random_)}));
        return true;
    }

private:
    static constexpr std::chrono::microseconds first_{500};
    static constexpr std::chrono::microseconds longest_{10'000};
    std::minstd_rand random_;
};

}  // namespace rowlock::driver
