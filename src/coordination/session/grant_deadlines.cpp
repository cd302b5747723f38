#include "coordination/session/grant_deadlines.hpp"

#include <algorithm>
#include <utility>

namespace rowlock::detail {

void grant_deadlines::add(const std::shared_ptr<grant>& granted) {
    const std::lock_guard lock{mutex_};
    all_.emplace(std::pair{granted->deadline.load(), granted->grant_id}, entry{granted});
}

void grant_deadlines::remove(const grant& ended) noexcept {
    if (ended.deadline.load() == base::alarm::never) return;
    const std::lock_guard lock{mutex_};
    all_.erase({ended.deadline.load(), ended.grant_id});
}

void grant_deadlines::shorten(const std::shared_ptr<grant>& held, nanoseconds to,
                              nanoseconds margin, nanoseconds over) {
    const std::lock_guard lock{mutex_};
    const auto before = held->deadline.load();
    if (before <= to) return;
    if (before == base::alarm::never) {
        all_.emplace(std::pair{to, held->grant_id}, entry{held});
    } else {
        auto node = all_.extract({before, held->grant_id});
        if (!node) return;  // due, under another time
        node.key().first = to;
        all_.insert(std::move(node));
    }
    held->deadline = to;
    held->deadline_margin = margin;
    held->deadline_over = over;
}

bool grant_deadlines::extend(grant& held, nanoseconds to, nanoseconds over) noexcept {
    const std::lock_guard lock{mutex_};
    auto node = all_.extract({held.deadline.load(), held.grant_id});
    if (!node) return false;  // due, under another time
    if (!node.mapped().lost && held.deadline.load() < to) {
        held.deadline = to;
        held.deadline_over = over;
        node.key().first = to;
    }
    const bool alive = !node.mapped().lost;
    all_.insert(std::move(node));
    return alive;
}

grant_deadlines::answer grant_deadlines::next(nanoseconds now) noexcept {
    const std::lock_guard lock{mutex_};
    while (!all_.empty()) {
        const auto first = all_.begin();
        if (first->first.first > now) return {nullptr, false, first->first.first};
        auto node = all_.extract(first);
        auto due = node.mapped().of.lock();
        if (!due) continue;
        const bool again = std::exchange(node.mapped().lost, true);
        if (!again) {
            node.key().first = std::max(now + due->deadline_margin.load(), due->deadline_over);
            all_.insert(std::move(node));
        }
        return {std::move(due), again, nanoseconds{0}};
    }
    return {nullptr, false, base::alarm::never};
}

}  // namespace rowlock::detail
