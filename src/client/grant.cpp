#include "client/grant.hpp"

#include <algorithm>

namespace rowlock::detail {

bool trust_window::open(nanoseconds now) noexcept {
    std::int64_t until = until_.load(std::memory_order_acquire);
    while (now.count() >= until) {
        if (until == closed) return false;
        if (until_.compare_exchange_weak(until, closed, std::memory_order_acq_rel)) return false;
    }
    return true;
}

bool trust_window::extend(nanoseconds until, nanoseconds now) noexcept {
    std::int64_t before = until_.load(std::memory_order_acquire);
    for (;;) {
        if (now.count() >= before) {
            close();
            return false;
        }
        if (until.count() <= before) return true;
        if (until_.compare_exchange_weak(before, until.count(), std::memory_order_acq_rel)) {
            return true;
        }
    }
}

bool grant::held() noexcept {
    if (now.load(std::memory_order_acquire) != state::held || fork.in_child()) return false;
    const nanoseconds time = clock.now();
    return session_trust->open(time) && time < deadline;
}

nanoseconds grant::remaining() noexcept {
    if (!held()) return nanoseconds{0};
    return std::max(nanoseconds{0}, std::min(session_trust->until(), deadline) - clock.now());
}

}  // namespace rowlock::detail
