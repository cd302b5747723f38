#include "lock/session/session.hpp"

namespace rowlock::detail {

void session::beaten(nanoseconds when) noexcept {
    auto before = last_beat_.load();
    while (before < when.count() && !last_beat_.compare_exchange_weak(before, when.count())) {
    }
}

}  // namespace rowlock::detail
