#pragma once

#include <memory>
#include <stop_token>

namespace rowlock::base {

/// Requests stops off the caller's thread, since request_stop() runs the user's callbacks. A thread
/// that takes a signal first makes sure that another thread will serve the rest, so a callback that
/// blocks delays no other signal. Threads end when idle; one that is stuck is left behind.
class loss_notifier {
public:
    loss_notifier();
    /// Signals that were handed over are still delivered.
    ~loss_notifier();
    loss_notifier(const loss_notifier&) = delete;
    loss_notifier& operator=(const loss_notifier&) = delete;

    void deliver(const std::stop_source& signal) noexcept;

private:
    struct shared;
    static void ensure_available(const std::shared_ptr<shared>& state);
    static void work(std::shared_ptr<shared> state);

    std::shared_ptr<shared> state_;
};

}  // namespace rowlock::base
