#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace rowlock::detail {

using std::chrono::nanoseconds;

/// How long a session may be trusted. Written by the heartbeat, read by every held().
///
/// Latched: once any thread has seen the window closed it stays closed, even if a reply to an
/// earlier heartbeat arrives afterwards.
class trust_window {
public:
    explicit trust_window(nanoseconds until) noexcept : until_{until.count()} {}

    [[nodiscard]] bool open(nanoseconds now) noexcept;
    /// False if it had closed already.
    bool extend(nanoseconds until, nanoseconds now) noexcept;
    void close() noexcept { until_.store(closed, std::memory_order_release); }
    /// When it closes unless extended; in the past if it has.
    [[nodiscard]] nanoseconds until() const noexcept {
        return nanoseconds{until_.load(std::memory_order_acquire)};
    }

private:
    static constexpr std::int64_t closed = 0;
    std::atomic<std::int64_t> until_;
};

}  // namespace rowlock::detail
