#pragma once

#include "base/clock.hpp"
#include <rowlock/error.hpp>
#include <rowlock/options.hpp>

#include <chrono>

namespace rowlock::detail {

using std::chrono::nanoseconds;

/// Decides when the waiters' loop tries again after a failure. Reads no clock: callers pass the
/// time. Used by one thread.
class loop_backoff {
public:
    /// @param with outlives this object
    explicit loop_backoff(const client_options& with) noexcept : options_{with} {}

    /// Whether a failure is no answer: the statement is sent again, and waiting threads learn of it
    /// only by the time that it costs them.
    [[nodiscard]] static bool passes(const error& failure) noexcept;

    /// The loop failed: plans the next attempt, which it returns. If the policy of the retries
    /// throws, in a second.
    /// @param idle no thread waits
    nanoseconds failed(const error& failure, bool idle, nanoseconds now) noexcept;
    void succeeded() noexcept { failures_ = 0; }
    /// Until when the loop pauses; a time that has passed if it does not. A pause without waiters
    /// ends with the first.
    [[nodiscard]] nanoseconds pauses_until(bool idle) noexcept;

private:
    [[nodiscard]] nanoseconds pause(const error& failure, bool idle, nanoseconds now) const;

    const client_options& options_;
    int failures_ = 0;
    nanoseconds failing_since_{0};
    nanoseconds retry_at_{0};
    bool pauses_idly_ = false;
};

}  // namespace rowlock::detail
