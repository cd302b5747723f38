#include "lock/session/grant_ledger.hpp"

#include <algorithm>
#include <utility>

namespace rowlock::detail {
namespace {

/// For a grant that is given up twice. The holder keeps the margin of the first record; the
/// heartbeat resolves the grant once either record permits it.
void amend(unresolved_grant& record, const unresolved_grant& again) noexcept {
    record.not_after = std::min(record.not_after, again.not_after);
    record.queued = record.queued || again.queued;
    record.believed_upgrade = record.believed_upgrade || again.believed_upgrade;
}

}  // namespace

void grant_ledger::expect(grant_id grant_id) {
    const std::lock_guard lock{mutex_};
    entries_.try_emplace(grant_id);
}

void grant_ledger::forget(grant_id grant_id) noexcept {
    const std::lock_guard lock{mutex_};
    const auto known = entries_.find(grant_id);
    if (known == entries_.end() || known->second.now == state::unresolved) return;
    entries_.erase(known);
}

void grant_ledger::hold(const std::shared_ptr<grant>& granted) {
    const std::lock_guard lock{mutex_};
    auto& known = entries_.try_emplace(granted->grant_id).first->second;
    if (known.now == state::held) return;
    if (known.now == state::unresolved) {
        --unresolved_;
        known.record = {};
    }
    known.now = state::held;
    known.granted = granted;
}

std::shared_ptr<grant> grant_ledger::find(grant_id grant_id) const {
    const std::lock_guard lock{mutex_};
    const auto known = entries_.find(grant_id);
    if (known == entries_.end() || known->second.now != state::held) return nullptr;
    return known->second.granted;
}

bool grant_ledger::knows(grant_id grant_id) const {
    const std::lock_guard lock{mutex_};
    const auto now = state_of(grant_id);
    return now && *now != state::unresolved;
}

std::vector<std::shared_ptr<grant>> grant_ledger::held() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::shared_ptr<grant>> all;
    all.reserve(entries_.size());
    for (const auto& [id, known] : entries_) {
        if (known.now == state::held) all.push_back(known.granted);
    }
    return all;
}

std::size_t grant_ledger::held_count() const {
    return count([](const entry& known) { return known.now == state::held; });
}

std::size_t grant_ledger::leases() const {
    return count([](const entry& known) {
        if (known.now != state::held) return false;
        return known.granted->now != grant::state::lost && !known.granted->unclaimed;
    });
}

bool grant_ledger::has_holder(nanoseconds now) const {
    return any([now](const entry& known) {
        if (known.now == state::held) return !known.granted->stopped;
        return known.now == state::unresolved && !known.record.is_due(now);
    });
}

bool grant_ledger::holds_for(const std::string& thread) const {
    return any([&](const entry& known) {
        return known.now == state::held && known.granted->now == grant::state::held &&
               !known.granted->unclaimed && known.granted->thread == thread;
    });
}

void grant_ledger::remember(unresolved_grant what) {
    const std::lock_guard lock{mutex_};
    auto& known = entries_.try_emplace(what.grant_id).first->second;
    ever_unknown_ = ever_unknown_ || !what.surely_ended;
    if (known.now == state::unresolved) return amend(known.record, what);
    if (known.now == state::held) what.holder = std::move(known.granted);
    ++unresolved_;
    known = {.now = state::unresolved, .record = std::move(what), .place = ++last_place_};
}

std::vector<unresolved_grant> grant_ledger::unresolved() const {
    const std::lock_guard lock{mutex_};
    if (unresolved_ == 0) return {};
    std::vector<const entry*> in_order;
    in_order.reserve(unresolved_);
    for (const auto& [id, known] : entries_) {
        if (known.now == state::unresolved) in_order.push_back(&known);
    }
    std::ranges::sort(in_order, {}, &entry::place);
    std::vector<unresolved_grant> all;
    all.reserve(in_order.size());
    for (const auto* known : in_order) all.push_back(known->record);
    return all;
}

void grant_ledger::resolved(grant_id grant_id) {
    const std::lock_guard lock{mutex_};
    if (state_of(grant_id) != state::unresolved) return;
    entries_.erase(grant_id);
    --unresolved_;
}

void grant_ledger::postpone(grant_id grant_id) {
    const std::lock_guard lock{mutex_};
    if (state_of(grant_id) == state::unresolved) entries_.at(grant_id).place = ++last_place_;
}

bool grant_ledger::is_unresolved(grant_id grant_id) const {
    const std::lock_guard lock{mutex_};
    return state_of(grant_id) == state::unresolved;
}

std::size_t grant_ledger::unresolved_count() const {
    const std::lock_guard lock{mutex_};
    return unresolved_;
}

std::size_t grant_ledger::unresolved_due(nanoseconds now) const {
    if (unresolved_count() == 0) return 0;
    return count([now](const entry& known) {
        return known.now == state::unresolved && known.record.is_due(now);
    });
}

bool grant_ledger::ever_unknown() const {
    const std::lock_guard lock{mutex_};
    return ever_unknown_;
}

void grant_ledger::doubt() noexcept {
    const std::lock_guard lock{mutex_};
    ever_unknown_ = true;
}

/// With the mutex held. Returns nullopt if the id is absent.
std::optional<grant_ledger::state> grant_ledger::state_of(grant_id grant_id) const {
    const auto known = entries_.find(grant_id);
    if (known == entries_.end()) return std::nullopt;
    return known->second.now;
}

template <typename Test>
std::size_t grant_ledger::count(Test test) const {
    const std::lock_guard lock{mutex_};
    const auto found =
        std::ranges::count_if(entries_, [&](const auto& each) { return test(each.second); });
    return static_cast<std::size_t>(found);
}

template <typename Test>
bool grant_ledger::any(Test test) const {
    const std::lock_guard lock{mutex_};
    return std::ranges::any_of(entries_, [&](const auto& each) { return test(each.second); });
}

}  // namespace rowlock::detail
