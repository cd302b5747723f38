#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>

namespace rowlock::driver {

/// A time of CLOCK_MONOTONIC for the kernel, which takes 0 for none: never less than a nanosecond.
inline timespec monotonic_time(std::chrono::steady_clock::time_point when) noexcept {
    using namespace std::chrono;
    const auto since = std::max<nanoseconds>(when.time_since_epoch(), nanoseconds{1});
    const auto whole = floor<seconds>(since);
    timespec made{};
    made.tv_sec = whole.count();
    made.tv_nsec = (since - whole).count();
    return made;
}

}  // namespace rowlock::driver
