#include "base/trust_window.hpp"

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

}  // namespace rowlock::detail
