#pragma once

#include <cstdint>
#include <limits>

namespace rowlock::sim {

using i64 = std::int64_t;
using u64 = std::uint64_t;

/// Times and durations are nanoseconds.
constexpr i64 us = 1'000, ms = 1'000 * us, second = 1'000 * ms;
constexpr i64 forever = std::numeric_limits<i64>::max();

/// splitmix64. The standard's distributions differ between libraries; these do not.
struct random {
    u64 state = 0;

    u64 next() noexcept {
        u64 z = (state += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    u64 below(u64 limit) noexcept { return limit == 0 ? 0 : next() % limit; }
    i64 between(i64 low, i64 high) noexcept {
        return low >= high ? low : low + static_cast<i64>(below(static_cast<u64>(high - low + 1)));
    }
    double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
    bool chance(double probability) noexcept { return probability > 0 && unit() < probability; }
    /// Many small values, few large ones.
    i64 skewed(i64 low, i64 high) noexcept {
        const double u = unit();
        return low + static_cast<i64>(u * u * u * static_cast<double>(high - low));
    }
};

}  // namespace rowlock::sim
