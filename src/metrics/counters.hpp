#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rowlock::detail {

enum class counter : unsigned char {
    acquired,
    busy,
    released,
    heartbeats,
    heartbeat_failures,
    reconnects,
    retries,
    sessions,
    unknown_outcomes,
    queued,
    handed_over,
    wake_ups,
    polls,
    cancelled,
    deadlocks,
    count_of_counters
};

/// What a client has counted since it was made. Thread-safe.
class counters {
public:
    void add(counter which, std::uint64_t by = 1) noexcept {
        all_[static_cast<std::size_t>(which)].fetch_add(by, std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t read(counter which) const noexcept {
        return all_[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
    }

private:
    std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(counter::count_of_counters)>
        all_{};
};

}  // namespace rowlock::detail
