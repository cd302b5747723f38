#include "base/loss_notifier.hpp"

#include "base/signal_blocked_thread.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace rowlock::base {

struct loss_notifier::shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::stop_source> queue;
    std::size_t available = 0;  ///< threads that wait for work or are about to
    bool closing = false;
};

loss_notifier::loss_notifier() : state_{std::make_shared<shared>()} {}

loss_notifier::~loss_notifier() {
    const std::lock_guard lock{state_->mutex};
    state_->closing = true;
    state_->changed.notify_all();
}

void loss_notifier::deliver(const std::stop_source& signal) noexcept {
    try {
        const std::lock_guard lock{state_->mutex};
        state_->queue.push_back(signal);
        ensure_available(state_);
        state_->changed.notify_one();
    } catch (...) {
        // No memory or no thread: delivering on this thread is better than never.
        std::stop_source{signal}.request_stop();
    }
}

/// Requires the mutex. Ensures that a thread will serve the queue even if all busy ones are stuck.
void loss_notifier::ensure_available(const std::shared_ptr<shared>& state) {
    if (state->available > 0) return;
    signal_blocked_thread(work, state).detach();
    ++state->available;
}

void loss_notifier::work(std::shared_ptr<shared> state) {
    constexpr std::chrono::seconds patience{2};
    std::unique_lock lock{state->mutex};
    for (;;) {
        state->changed.wait_for(lock, patience,
                                [&] { return state->closing || !state->queue.empty(); });
        --state->available;
        if (state->queue.empty()) return;
        std::stop_source next = std::move(state->queue.front());
        state->queue.pop_front();
        try {
            // This thread may never come back from the callback: leave a successor first.
            if (!state->queue.empty()) ensure_available(state);
        } catch (...) {
            // No thread available: the rest waits for this one.
        }
        lock.unlock();
        next.request_stop();
        lock.lock();
        ++state->available;
    }
}

}  // namespace rowlock::base
