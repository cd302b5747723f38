#include "base/event_queue.hpp"

#include "base/signal_blocked_thread.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace rowlock::base {

struct event_queue::shared {
    event_callback callback;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<event> queue;
    std::uint64_t dropped = 0;
    bool started = false;
    bool closing = false;
    bool finished = false;
};

event_queue::event_queue(event_callback callback) {
    if (!callback) return;
    state_ = std::make_shared<shared>();
    state_->callback = std::move(callback);
}

event_queue::~event_queue() {
    if (!state_) return;
    std::unique_lock lock{state_->mutex};
    state_->closing = true;
    state_->changed.notify_all();
    if (!state_->started) return;
    state_->changed.wait_for(lock, std::chrono::seconds{1}, [this] { return state_->finished; });
}

void event_queue::post(event what) noexcept {
    if (!state_) return;
    try {
        const std::lock_guard lock{state_->mutex};
        if (!state_->started) {
            signal_blocked_thread(deliver, state_).detach();
            state_->started = true;
        }
        if (state_->queue.size() == capacity) {
            state_->queue.pop_front();
            ++state_->dropped;
        }
        state_->queue.push_back(std::move(what));
        state_->changed.notify_all();
    } catch (...) {
        // No memory or no thread: an event is lost, never a lock.
    }
}

void event_queue::deliver(std::shared_ptr<shared> state) {
    std::unique_lock lock{state->mutex};
    for (;;) {
        state->changed.wait(lock, [&] { return state->closing || !state->queue.empty(); });
        if (state->queue.empty()) break;
        event next;
        if (state->dropped > 0) {
            next.kind = event_kind::events_dropped;
            try {
                next.message =
                    std::to_string(state->dropped) + " events were dropped: the callback is slow";
            } catch (...) {
                // No memory for the message.
            }
            state->dropped = 0;
        } else {
            next = std::move(state->queue.front());
            state->queue.pop_front();
        }
        lock.unlock();
        try {
            state->callback(next);
        } catch (...) {
            // An exception of the user's callback is dropped: this thread also serves every other
            // event.
        }
        lock.lock();
    }
    state->finished = true;
    state->changed.notify_all();
}

}  // namespace rowlock::base
