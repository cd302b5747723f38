#pragma once

#include <rowlock/options.hpp>

#include <poll.h>

#include <chrono>
#include <memory>
#include <span>

namespace rowlock::base {

using std::chrono::nanoseconds;

/// The client's clock: CLOCK_BOOTTIME, or the hand-moved one of a test. Reading it is two calls
/// cheaper than a virtual function where it matters: held().
class clock {
public:
    explicit clock(std::shared_ptr<time_source> replaced = {}) : replaced_{std::move(replaced)} {}

    [[nodiscard]] nanoseconds now() const noexcept;
    [[nodiscard]] const std::shared_ptr<time_source>& replaced() const noexcept {
        return replaced_;
    }

private:
    std::shared_ptr<time_source> replaced_;
};

/// Sleeps until a time on that clock or until poked, whichever is first. CLOCK_BOOTTIME goes on
/// while the machine is suspended, and the timer fires at once after a resume; a condition variable
/// would sleep on. One thread waits, any thread pokes.
class alarm {
public:
    explicit alarm(clock clock);
    ~alarm();
    alarm(const alarm&) = delete;
    alarm& operator=(const alarm&) = delete;

    static constexpr nanoseconds never = nanoseconds::max();

    void wait_until(nanoseconds moment) { static_cast<void>(wait_until(moment, {})); }
    /// Also returns when one of these descriptors is readable or was closed by its peer; negative
    /// ones are ignored. `revents` reports which. True if it was poked.
    bool wait_until(nanoseconds moment, std::span<pollfd> also);
    static constexpr std::size_t most_others = 4;
    /// Ends the current or next wait at once.
    void poke() const noexcept;

private:
    clock clock_;
    int timer_ = -1;
    int wake_ = -1;
    std::shared_ptr<void> subscription_;
};

}  // namespace rowlock::base
