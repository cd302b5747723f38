#include "lock/session/lost_sessions.hpp"

#include "base/clock.hpp"

#include <algorithm>
#include <utility>

namespace rowlock::detail {

using base::alarm;

void lost_sessions::add(std::shared_ptr<session> lost) {
    const std::lock_guard lock{mutex_};
    all_.push_back({std::move(lost), alarm::never, alarm::never});
}

void lost_sessions::begin_margin(session_id lost, nanoseconds now) noexcept {
    const std::lock_guard lock{mutex_};
    for (auto& each : all_) {
        if (each.which->id() != lost) continue;
        each.not_before = now + margin_;
        each.expired_by = each.not_before + ttl_;
    }
}

void lost_sessions::end_all() noexcept {
    const std::lock_guard lock{mutex_};
    end_all_ = true;
}

std::optional<session_id> lost_sessions::due(nanoseconds now) {
    const std::lock_guard lock{mutex_};
    std::erase_if(all_, [&](const auto& each) { return each.expired_by < now; });
    const auto next =
        std::ranges::find_if(all_, [&](const auto& each) { return due_at(each, now) <= now; });
    if (next == all_.end()) return std::nullopt;
    return next->which->id();
}

void lost_sessions::ended(session_id lost) noexcept {
    const std::lock_guard lock{mutex_};
    std::erase_if(all_, [&](const auto& each) { return each.which->id() == lost; });
}

nanoseconds lost_sessions::next_due(nanoseconds now) const {
    const std::lock_guard lock{mutex_};
    nanoseconds next = alarm::never;
    for (const auto& each : all_) next = std::min(next, due_at(each, now));
    return next;
}

bool lost_sessions::all_due(nanoseconds now) const {
    const std::lock_guard lock{mutex_};
    return std::ranges::all_of(all_, [&](const auto& each) { return due_at(each, now) <= now; });
}

/// With the mutex held.
nanoseconds lost_sessions::due_at(const entry& lost, nanoseconds now) const {
    return end_all_ || !lost.which->grants().has_holder(now) ? nanoseconds::min() : lost.not_before;
}

}  // namespace rowlock::detail
