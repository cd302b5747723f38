#pragma once

#include <rowlock/events.hpp>

#include <concepts>
#include <memory>

namespace rowlock::base {

/// Calls the user's callback on a thread of its own, in order. post() never waits for it.
class event_queue {
public:
    explicit event_queue(event_callback callback);
    /// Delivers queued events for up to a second; a callback that blocks longer is left behind.
    ~event_queue();
    event_queue(const event_queue&) = delete;
    event_queue& operator=(const event_queue&) = delete;

    void post(event what) noexcept;
    /// Posts what `make()` returns, for texts that need memory. If it throws, an event is lost,
    /// never a lock.
    template <std::invocable Make>
    void post(const Make& make) noexcept {
        if (!state_) return;
        try {
            post(make());
        } catch (...) {
            // See above.
        }
    }

    static constexpr std::size_t capacity = 1024;

private:
    struct shared;
    static void deliver(std::shared_ptr<shared> state);

    std::shared_ptr<shared> state_;  ///< null without a callback
};

}  // namespace rowlock::base
