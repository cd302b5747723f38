#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rowlock::metrics {

using std::chrono::nanoseconds;

/// What a histogram has counted.
struct distribution {
    std::span<const nanoseconds> bounds;  ///< the upper bound of each bucket but the last
    std::array<std::uint64_t, 32> counts{};
    std::uint64_t count = 0;  ///< the sum of `counts`
    nanoseconds sum{0};
};

/// Counts durations by fixed upper bounds. Two atomic additions without an order: a reader may see
/// one of them, and the sum then lacks a duration that a bucket has. Thread-safe.
template <const auto& Bounds>
class histogram {
public:
    static_assert(std::ranges::is_sorted(Bounds) && Bounds.size() < distribution{}.counts.size());

    void observe(nanoseconds took) noexcept {
        const auto bucket = std::ranges::lower_bound(Bounds, took) - Bounds.begin();
        counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
        // 584 years go into it.
        sum_.fetch_add(static_cast<std::uint64_t>(std::max(took, nanoseconds{0}).count()),
                       std::memory_order_relaxed);
    }
    [[nodiscard]] distribution read() const noexcept {
        distribution all{.bounds = Bounds};
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            all.counts.at(i) = counts_[i].load(std::memory_order_relaxed);
            all.count += all.counts.at(i);
        }
        all.sum = nanoseconds{sum_.load(std::memory_order_relaxed)};
        return all;
    }

private:
    std::array<std::atomic<std::uint64_t>, Bounds.size() + 1> counts_{};
    std::atomic<std::uint64_t> sum_{0};
};

}  // namespace rowlock::metrics
