#include "lock/session/link_timing.hpp"

#include <algorithm>

namespace rowlock::detail {

using namespace std::chrono_literals;

void link_timing::note_round_trip(nanoseconds took) noexcept {
    const auto before = round_trip_.load();
    const auto rising = before + before / 8;
    round_trip_ = before == 0 ? took.count() : std::min(took.count(), rising);
}

nanoseconds link_timing::period() const noexcept {
    return round_trip() > of_.heartbeat / 10 ? of_.heartbeat / 2 : of_.heartbeat;
}

nanoseconds link_timing::late_at(nanoseconds last, bool connected) const noexcept {
    const nanoseconds patience = connected ? std::max(of_.heartbeat / 4, round_trip() * 3 / 2)
                                           : std::min<nanoseconds>(of_.heartbeat / 8, 50ms);
    const nanoseconds window = of_.ttl - of_.margin;
    return last + period() + std::min(patience, (window - period()) / 2);
}

nanoseconds link_timing::connect_at(nanoseconds last) const noexcept {
    constexpr nanoseconds soon = 200ms;
    constexpr nanoseconds slow = 20ms;
    if (round_trip() > slow) return nanoseconds::min();
    return last + std::min<nanoseconds>(soon, of_.heartbeat / 4);
}

nanoseconds link_timing::pause_after(int failures) const noexcept {
    const nanoseconds soon = 20ms * (1 << std::min(failures, 10));
    return std::min<nanoseconds>(soon, of_.heartbeat / 4);
}

std::optional<nanoseconds> link_timing::wanted_ttl(nanoseconds opening) const noexcept {
    const nanoseconds available = of_.ttl - of_.margin - period();
    const nanoseconds needed = opening + 2 * round_trip();
    if (needed <= available && 10 * round_trip() <= of_.ttl) return std::nullopt;
    const auto factor =
        static_cast<double>(needed.count()) / static_cast<double>(available.count());
    const std::chrono::duration<double, std::nano> longer = of_.ttl * factor;
    return std::max(10 * round_trip(), std::chrono::ceil<nanoseconds>(longer));
}

}  // namespace rowlock::detail
