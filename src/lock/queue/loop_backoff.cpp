#include "lock/queue/loop_backoff.hpp"

#include <algorithm>

namespace rowlock::detail {

using namespace std::chrono_literals;

bool loop_backoff::passes(const error& failure) noexcept {
    return failure.retryable() || failure.kind() == errc::outcome_unknown ||
           failure.kind() == errc::read_only;
}

nanoseconds loop_backoff::failed(const error& failure, bool idle, nanoseconds now) noexcept {
    if (failures_++ == 0) failing_since_ = now;
    pauses_idly_ = idle;
    try {
        retry_at_ = now + pause(failure, idle, now);
    } catch (...) {
        retry_at_ = now + 1s;
    }
    return retry_at_;
}

/// Waiting threads were promised a poll in each poll_interval.
nanoseconds loop_backoff::pause(const error& failure, bool idle, nanoseconds now) const {
    constexpr nanoseconds shortest = 5ms;
    const nanoseconds longest =
        std::max<nanoseconds>(idle ? options_.heartbeat : options_.poll_interval, shortest);
    const auto elapsed =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - failing_since_);
    const auto planned = options_.retry.next(failure, failures_, elapsed);
    const nanoseconds after_all = idle ? longest : nanoseconds{options_.retry.max_backoff};
    return std::clamp(planned ? nanoseconds{*planned} : after_all, shortest, longest);
}

nanoseconds loop_backoff::pauses_until(bool idle) noexcept {
    if (pauses_idly_ && !idle) retry_at_ = {};
    return retry_at_;
}

}  // namespace rowlock::detail
