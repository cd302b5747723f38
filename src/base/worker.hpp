#pragma once

#include "base/clock.hpp"

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <thread>

namespace rowlock::base {

/// A thread that takes a step, sleeps until the moment the step returned or until poked, and so on.
/// Heartbeat, watchdog and reaper are such threads.
class worker {
public:
    /// What may cut a sleep short besides. Both are called by the thread of the worker alone, and
    /// must not throw.
    struct ears {
        static constexpr std::size_t most = 2;
        /// Before each sleep: fills in the descriptors to poll, -1 for none. Returns when to hear
        /// at the latest.
        std::function<nanoseconds(std::span<pollfd>)> open{};
        /// One of them can be read, or it is time. True: the next step is to be taken now.
        std::function<bool()> hear{};
    };

    /// @param step must not throw; returns when to run again on `clock`, alarm::never to sleep
    /// until poked
    worker(const clock& clock, std::function<nanoseconds()> step) : worker{clock, step, {}} {}
    worker(const clock& clock, std::function<nanoseconds()> step, ears with);
    /// Waits for the step that is running.
    ~worker();
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;

    /// The next step is taken now.
    void poke() const noexcept;
    /// Something was said that no descriptor of its ears shows: it hears now. No step by itself.
    void poke_ears() const noexcept { alarm_.poke(); }
    /// No further step; the destructor waits for the one that is running.
    void stop() noexcept;

private:
    void run();
    bool sleep(nanoseconds until);

    const clock clock_;
    alarm alarm_;
    std::function<nanoseconds()> step_;
    const ears ears_;
    std::atomic<bool> stopping_{false};
    mutable std::atomic<bool> poked_{false};
    std::thread thread_;
};

}  // namespace rowlock::base
