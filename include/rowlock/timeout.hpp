#pragma once

#include <chrono>

namespace rowlock::detail {

/// A wait that is to last longer has this length: the clock would overflow.
inline constexpr std::chrono::hours longest_wait{24 * 365 * 10};

/// When a wait that begins now is over.
template <typename Rep, typename Period>
[[nodiscard]] std::chrono::steady_clock::time_point after(
    const std::chrono::duration<Rep, Period>& timeout) {
    using namespace std::chrono;
    if (duration<double>{timeout} > duration<double>{longest_wait}) {
        return steady_clock::now() + longest_wait;
    }
    return steady_clock::now() + ceil<steady_clock::duration>(timeout);
}

}  // namespace rowlock::detail
