#pragma once

#include <chrono>

namespace rowlock::detail {

/// A wait that is to last longer has this length: the clock would overflow.
inline constexpr std::chrono::hours longest_wait{24 * 365 * 10};

/// When a wait that begins now is over: now if `timeout` is not positive.
template <typename Rep, typename Period>
[[nodiscard]] std::chrono::steady_clock::time_point after(
    const std::chrono::duration<Rep, Period>& timeout) {
    using namespace std::chrono;
    const auto now = steady_clock::now();
    const duration<double> wanted{timeout};
    if (!(wanted > duration<double>::zero())) return now;  // not a number is not positive either
    if (wanted > duration<double>{longest_wait}) return now + longest_wait;
    return now + ceil<steady_clock::duration>(timeout);
}

/// When a wait that begins now and lasts up to a moment of another clock is over. The earliest and
/// the latest moment of any clock are valid: their distance from now overflows only as an integer.
template <typename Clock, typename Duration>
[[nodiscard]] std::chrono::steady_clock::time_point at(
    const std::chrono::time_point<Clock, Duration>& until) {
    using seconds = std::chrono::duration<double>;
    const auto now = Clock::now();
    const seconds left = seconds{until.time_since_epoch()} - seconds{now.time_since_epoch()};
    if (!(left > seconds::zero()) || left > seconds{longest_wait}) return after(left);
    return after(until - now);
}

}  // namespace rowlock::detail
