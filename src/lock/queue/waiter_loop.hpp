#pragma once

#include "base/clock.hpp"
#include "lock/queue/loop_backoff.hpp"
#include "lock/queue/loop_parts.hpp"
#include "lock/queue/waiter_rounds.hpp"
#include <rowlock/error.hpp>

#include <atomic>
#include <optional>
#include <string_view>
#include <thread>

namespace rowlock::detail {

/// The thread that works for all waiting threads of a client: sleeps until something is due or
/// comes, runs a round, and pauses after a failure.
class waiter_loop {
public:
    /// @param parts outlive the loop
    /// @throws error errc::out_of_resources
    waiter_loop(const loop_parts& parts, base::alarm& alarm);
    waiter_loop(const waiter_loop&) = delete;
    waiter_loop& operator=(const waiter_loop&) = delete;
    ~waiter_loop();

    /// Begins no further step.
    void stop() noexcept;
    /// Ends the thread, after the running step: at most one statement deadline. No connection is
    /// left.
    void close() noexcept;
    /// Fails the threads that wait for `name`, or all, and gives back what their entries get.
    void fail(const error& failure, std::optional<std::string_view> only);
    [[nodiscard]] waiter_rounds& rounds() noexcept { return rounds_; }
    [[nodiscard]] const waiter_rounds& rounds() const noexcept { return rounds_; }

private:
    void run() noexcept;
    void sleep(nanoseconds until) noexcept;
    nanoseconds step() noexcept;
    nanoseconds after_failure(const error& failure) noexcept;

    const loop_parts& parts_;
    base::alarm& alarm_;
    std::atomic<bool> stopping_{false};
    loop_backoff backoff_;
    waiter_rounds rounds_;
    std::thread thread_;
};

}  // namespace rowlock::detail
