#pragma once

#include <thread>
#include <utility>

namespace rowlock::base {

/// Blocks all signals while it lives. A thread started meanwhile inherits the mask: signals are for
/// the application's threads.
class blocked_signals {
public:
    blocked_signals();
    blocked_signals(const blocked_signals&) = delete;
    blocked_signals& operator=(const blocked_signals&) = delete;
    ~blocked_signals();

private:
    alignas(16) unsigned char before_[128] = {};  ///< a sigset_t
};

/// A thread that receives no signals.
template <typename... Parts>
[[nodiscard]] std::thread signal_blocked_thread(Parts&&... parts) {
    const blocked_signals inherited;
    return std::thread{std::forward<Parts>(parts)...};
}

}  // namespace rowlock::base
