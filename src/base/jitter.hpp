#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace rowlock::base {

/// Shortened at random by up to this fraction, half of it if none is given, so that many who wait
/// do not come all at once.
template <typename Duration>
[[nodiscard]] Duration shortened(Duration time, double by = 0.5) {
    thread_local std::minstd_rand generator{std::random_device{}()};
    const double part = 1.0 - by * std::uniform_real_distribution<double>{}(generator);
    return Duration{static_cast<typename Duration::rep>(static_cast<double>(time.count()) * part)};
}

}  // namespace rowlock::base
