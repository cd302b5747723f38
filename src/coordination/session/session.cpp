#include "coordination/session/session.hpp"

#include <algorithm>

namespace rowlock::detail {
namespace {

constexpr nanoseconds between_news = std::chrono::seconds{1};

}  // namespace

void session::beaten(nanoseconds when) noexcept {
    auto before = last_beat_.load();
    while (before < when.count() && !last_beat_.compare_exchange_weak(before, when.count())) {
    }
}

void session::expect(std::int64_t grant_id) {
    const std::lock_guard lock{mutex_};
    pending_.insert(grant_id);
}

void session::forget(std::int64_t grant_id) noexcept {
    const std::lock_guard lock{mutex_};
    pending_.erase(grant_id);
    held_.erase(grant_id);
}

void session::hold(const std::shared_ptr<grant>& granted) {
    const std::lock_guard lock{mutex_};
    held_.emplace(granted->grant_id, granted);
    pending_.erase(granted->grant_id);
    std::erase_if(unresolved_, [&](const auto& it) { return it.grant_id == granted->grant_id; });
}

bool session::knows(std::int64_t grant_id) const {
    const std::lock_guard lock{mutex_};
    return pending_.contains(grant_id) || held_.contains(grant_id);
}

std::vector<std::shared_ptr<grant>> session::held() const {
    const std::lock_guard lock{mutex_};
    std::vector<std::shared_ptr<grant>> all;
    all.reserve(held_.size());
    for (const auto& [id, granted] : held_) all.push_back(granted);
    return all;
}

std::size_t session::held_count() const {
    const std::lock_guard lock{mutex_};
    return held_.size();
}

std::size_t session::leases() const {
    const std::lock_guard lock{mutex_};
    const auto lost = std::ranges::count_if(
        held_, [](const auto& each) { return each.second->now == grant::state::lost; });
    return held_.size() - static_cast<std::size_t>(lost);
}

bool session::has_holder(nanoseconds now) const {
    const std::lock_guard lock{mutex_};
    return std::ranges::any_of(held_, [](const auto& each) { return !each.second->stopped; }) ||
           std::ranges::any_of(unresolved_, [&](const auto& each) { return !each.is_due(now); });
}

bool session::holds_for(const std::string& thread) const {
    const std::lock_guard lock{mutex_};
    return std::ranges::any_of(held_, [&](const auto& each) {
        return each.second->thread == thread && each.second->now == grant::state::held;
    });
}

void session::remember(unresolved_grant what) {
    const std::lock_guard lock{mutex_};
    pending_.erase(what.grant_id);
    const auto known = held_.find(what.grant_id);
    if (known != held_.end()) what.holder = known->second;
    unresolved_.push_back(std::move(what));
    if (known != held_.end()) held_.erase(known);
    ever_unknown_ = ever_unknown_ || !unresolved_.back().surely_ended;
}

std::vector<unresolved_grant> session::unresolved() const {
    const std::lock_guard lock{mutex_};
    return unresolved_;
}

void session::resolved(std::int64_t grant_id) {
    const std::lock_guard lock{mutex_};
    std::erase_if(unresolved_, [&](const auto& it) { return it.grant_id == grant_id; });
}

void session::postpone(std::int64_t grant_id) {
    const std::lock_guard lock{mutex_};
    std::stable_partition(unresolved_.begin(), unresolved_.end(),
                          [&](const auto& it) { return it.grant_id != grant_id; });
}

bool session::is_unresolved(std::int64_t grant_id) const {
    const std::lock_guard lock{mutex_};
    return std::ranges::any_of(unresolved_,
                               [&](const auto& it) { return it.grant_id == grant_id; });
}

bool session::is_news(std::int64_t of) const {
    const std::lock_guard lock{mutex_};
    return of > std::max(told_, revision.load());
}

bool session::tell(std::int64_t of, nanoseconds now) {
    const std::lock_guard lock{mutex_};
    const bool known = told_ > revision;
    told_ = std::max(told_, of);
    if (known || told_ <= revision) return false;
    news_at_ = std::max(now, no_news_before_);
    no_news_before_ = news_at_ + between_news;
    return true;
}

nanoseconds session::news_at() const {
    const std::lock_guard lock{mutex_};
    return told_ > revision ? news_at_ : base::alarm::never;
}

std::int64_t session::told() const {
    const std::lock_guard lock{mutex_};
    return told_;
}

void session::settle_news(std::int64_t before, nanoseconds now) {
    const std::lock_guard lock{mutex_};
    if (before <= revision) return;  // a later notification has its own time
    if (told_ == before) {
        told_ = 0;  // the notification was false
        return;
    }
    news_at_ = std::max(now, no_news_before_);
    no_news_before_ = news_at_ + between_news;
}

void session::doubt() noexcept {
    const std::lock_guard lock{mutex_};
    ever_unknown_ = true;
}

bool session::ever_unknown() const {
    const std::lock_guard lock{mutex_};
    return ever_unknown_;
}

std::size_t session::unresolved_due(nanoseconds now) const {
    const std::lock_guard lock{mutex_};
    const auto due =
        std::ranges::count_if(unresolved_, [&](const auto& it) { return it.is_due(now); });
    return static_cast<std::size_t>(due);
}

std::size_t session::unresolved_count() const {
    const std::lock_guard lock{mutex_};
    return unresolved_.size();
}

}  // namespace rowlock::detail
