#include "lock/session/grant_deadlines.hpp"

#include <algorithm>
#include <utility>

namespace rowlock::detail {

void grant_deadlines::add(const std::shared_ptr<grant>& granted) {
    const std::lock_guard lock{mutex_};
    granted->deadline_key = granted->deadline.load();
    all_.emplace(std::pair{granted->deadline_key, granted->grant_id}, entry{granted});
}

void grant_deadlines::remove(const grant& ended) noexcept {
    if (ended.deadline.load() == base::alarm::never) return;
    const std::lock_guard lock{mutex_};
    all_.erase({ended.deadline_key, ended.grant_id});
}

void grant_deadlines::cap(const std::shared_ptr<grant>& held, nanoseconds to, nanoseconds margin,
                          nanoseconds over, bool shortens) {
    const std::lock_guard lock{mutex_};
    held->deadline_cap = std::min(held->deadline_cap, to);
    auto before = held->deadline.load();
    if (!shortens || before <= to) return;
    if (before == base::alarm::never) {
        all_.emplace(std::pair{to, held->grant_id}, entry{held});
    } else if (auto node = all_.extract({held->deadline_key, held->grant_id})) {
        node.key().first = to;
        all_.insert(std::move(node));
    }
    // Without a node it has been due, or add() is about to read this.
    held->deadline_key = to;
    while (before > to && !held->deadline.compare_exchange_weak(before, to)) {
    }
    held->deadline_margin = margin;
    held->deadline_over = over;
}

bool grant_deadlines::extend(grant& held, nanoseconds to, nanoseconds over,
                             nanoseconds now) noexcept {
    const std::lock_guard lock{mutex_};
    auto node = all_.extract({held.deadline_key, held.grant_id});
    if (!node) return false;  // due, under another time
    to = std::min(to, held.deadline_cap);
    auto believed = held.deadline.load();
    bool alive = !node.mapped().lost && held.in_time(now);
    if (alive && held.deadline_key < to) {
        // Unless a thread sees it pass at this moment.
        alive = held.deadline.compare_exchange_strong(believed, to);
        if (alive) {
            held.deadline_over = over;
            node.key().first = held.deadline_key = to;
        }
    }
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
