#pragma once

#include <memory>
#include <stop_token>

namespace rowlock::base {

/// Requests stops off the caller's thread, since request_stop() runs the user's callbacks. A thread
/// that takes a signal first makes sure that another will look at the rest, so a callback that
/// blocks delays no other signal. Threads end when idle; one that is stuck is left behind.
class loss_signals {
public:
    loss_signals();
    /// Signals that were handed over are still delivered.
    ~loss_signals();
    loss_signals(const loss_signals&) = delete;
    loss_signals& operator=(const loss_signals&) = delete;

    void deliver(const std::stop_source& signal) noexcept;

private:
    struct shared;
    static void ensure_available(const std::shared_ptr<shared>& state);
    static void work(std::shared_ptr<shared> state);

    std::shared_ptr<shared> state_;
};

}  // namespace rowlock::base
