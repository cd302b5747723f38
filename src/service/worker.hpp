#pragma once

#include "service/clock.hpp"

#include <atomic>
#include <functional>
#include <thread>

namespace rowlock::service {

/// A thread that takes a step, sleeps until the moment the step returned or until poked, and so on.
/// Heartbeat, watchdog and reaper are such threads.
class worker {
public:
    /// @param step must not throw; returns when to run again on `clock`, alarm::never to sleep
    /// until poked
    worker(const clock& clock, std::function<nanoseconds()> step);
    /// Waits for the step that is running.
    ~worker();
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;

    void poke() const noexcept { alarm_.poke(); }
    /// No further step; the destructor waits for the one that is running.
    void stop() noexcept;

private:
    void run();

    alarm alarm_;
    std::function<nanoseconds()> step_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace rowlock::service
