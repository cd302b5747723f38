#pragma once

#include <chrono>
#include <random>

namespace rowlock::base {

/// The calling thread's random numbers for pauses; not for secrets. A forked child's are not those
/// of its parent: processes that begin together must not pause in step.
[[nodiscard]] std::minstd_rand& jitter_generator() noexcept;

/// A time at random, both bounds included.
template <typename Duration>
[[nodiscard]] Duration random_between(Duration shortest, Duration longest) {
    std::uniform_int_distribution<typename Duration::rep> pick{shortest.count(), longest.count()};
    return Duration{pick(jitter_generator())};
}

/// Shortens a time at random by up to this fraction (half by default), so that many waiters do not
/// arrive at once.
template <typename Duration>
[[nodiscard]] Duration shortened(Duration time, double by = 0.5) {
    const double part = 1.0 - by * std::uniform_real_distribution<double>{}(jitter_generator());
    return Duration{static_cast<typename Duration::rep>(static_cast<double>(time.count()) * part)};
}

}  // namespace rowlock::base
