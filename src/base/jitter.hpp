#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace rowlock::base {

/// Shortens a time at random by up to this fraction (half by default), so that many waiters do not
/// arrive at once.
template <typename Duration>
[[nodiscard]] Duration shortened(Duration time, double by = 0.5) {
    thread_local std::minstd_rand generator{std::random_device{}()};
    const double part = 1.0 - by * std::uniform_real_distribution<double>{}(generator);
    return Duration{static_cast<typename Duration::rep>(static_cast<double>(time.count()) * part)};
}

}  // namespace rowlock::base
