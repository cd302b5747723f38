#pragma once

#include "support/waits.hpp"

#include <chrono>
#include <stdexcept>

namespace support {

/// Waits until `held` is lost. Returns the last time at which it was seen held, or `since`: never
/// later than the loss, however long this process stalls.
template <typename Held>
std::chrono::steady_clock::time_point last_held(const Held& held,
                                                std::chrono::steady_clock::time_point since) {
    auto last = since;
    const bool lost = eventually([&] {
        const auto now = std::chrono::steady_clock::now();
        const bool still = held.held();
        if (still) last = now;
        return !still;
    });
    if (!lost) throw std::runtime_error{"it is held for longer than expected"};
    return last;
}

}  // namespace support
