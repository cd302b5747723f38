#pragma once

#include "base/clock.hpp"

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <thread>

namespace rowlock::base {

/// A thread that runs a step, sleeps until the time the step returned or until poked, and repeats.
/// Heartbeat, watchdog and reaper are such threads.
class worker {
public:
    /// Other events that may cut a sleep short. Both functions are called on the worker's thread
    /// alone, and must not throw.
    struct listener {
        static constexpr std::size_t most = 2;
        /// Called before each sleep: fills in the descriptors to poll, -1 for none. Returns when to
        /// call read() at the latest.
        std::function<nanoseconds(std::span<pollfd>)> open{};
        /// Called when one of them is readable, or it is time. True: the next step is due now.
        std::function<bool()> read{};
    };

    /// @param step must not throw; returns when to run again on `clock`, alarm::never to sleep
    /// until poked
    worker(const clock& clock, std::function<nanoseconds()> step) : worker{clock, step, {}} {}
    worker(const clock& clock, std::function<nanoseconds()> step, listener with);
    /// Waits for the running step.
    ~worker();
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;

    /// Makes the next step due now.
    void poke() const noexcept;
    /// For a message that no descriptor of the listener shows: wakes the thread, so that open() can
    /// ask for read() at once. Causes no step by itself.
    void poke_listener() const noexcept { alarm_.poke(); }
    /// Allows no further step; the destructor waits for the running one.
    void stop() noexcept;

private:
    void run();
    bool sleep(nanoseconds until);

    const clock clock_;
    alarm alarm_;
    std::function<nanoseconds()> step_;
    const listener listener_;
    std::atomic<bool> stopping_{false};
    mutable std::atomic<bool> poked_{false};
    std::thread thread_;
};

}  // namespace rowlock::base
