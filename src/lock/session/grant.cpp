#include "lock/session/grant.hpp"

#include <algorithm>

namespace rowlock::detail {

bool grant::held() noexcept {
    if (now.load(std::memory_order_acquire) != state::held || fork.in_child()) return false;
    const nanoseconds time = clock.now();
    return session_trust->open(time) && in_time(time);
}

bool grant::in_time(nanoseconds time) noexcept {
    constexpr nanoseconds over{0};
    auto ends = deadline.load();
    while (time >= ends) {
        if (deadline.compare_exchange_weak(ends, over)) return false;
    }
    return true;
}

nanoseconds grant::remaining() noexcept {
    if (!held()) return nanoseconds{0};
    return std::max(nanoseconds{0},
                    std::min(session_trust->until(), deadline.load()) - clock.now());
}

std::int64_t grant::last_row_token() const noexcept {
    return std::max(row_token.load(), next_row_token.load());
}

void raise(std::atomic<std::int64_t>& token, std::int64_t to) noexcept {
    auto known = token.load();
    while (known < to && !token.compare_exchange_weak(known, to)) {
    }
}

error lost_error(const grant& lost) {
    return error{errc::lock_lost, "the lease was lost (" +
                                      std::string{to_string(lost.reason.load())} +
                                      "): what it protected may have been touched by another"};
}

error client_destroyed() {
    return error{errc::lock_lost, "the client was destroyed"};
}

}  // namespace rowlock::detail
