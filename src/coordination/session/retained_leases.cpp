#include "coordination/session/retained_leases.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace rowlock::detail {

using namespace std::chrono_literals;

namespace {

/// Leases whose time is up within this are given back together.
constexpr nanoseconds most_together = 20ms;

}  // namespace

bool retention_policy::released(std::int64_t token, nanoseconds now) noexcept {
    in_a_row_ = token == last_ + 1 ? in_a_row_ + 1 : 1;
    last_ = token;
    return in_a_row_ >= needed_ && now >= quiet_until_;
}

void retention_policy::contended(nanoseconds now) noexcept {
    in_a_row_ = 0;
    quiet_until_ = now + quiet;
}

void retention_policy::ended(std::int64_t local_grants, bool recalled,
                             std::int64_t token) noexcept {
    in_a_row_ = recalled ? 0 : 1;
    last_ = token;
    if (local_grants < bad && (recalled || local_grants == 0)) {
        needed_ = std::min(2 * needed_, most_needed);
    } else if (local_grants >= good) {
        needed_ = std::max(needed_ / 2, least_needed);
    }
}

std::int64_t retention_policy::next_block(std::int64_t used) noexcept {
    if (used > block_ / 2) {
        block_ = std::min(4 * block_, most_block);
    } else if (used < block_ / 8) {
        block_ = std::max(block_ / 2, least_block);
    }
    return block_;
}

retained_leases::retained_leases(const std::optional<retain_options>& options,
                                 const base::clock& clock)
    : options_{options.value_or(retain_options{})}, clock_{clock}, enabled_{options.has_value()} {}

void retained_leases::close() noexcept {
    if (!enabled_.exchange(false)) return;
    // A grant refers to its retained_lease, and an idle one is referred to by it.
    for (auto& each : shards_) {
        const std::lock_guard lock{each.mutex};
        for (const auto& [name, kept] : each.names) {
            const std::lock_guard its{kept->mutex_};
            kept->idle_.reset();
            kept->now_ = retained_lease::state::absent;
            kept->given_back_.notify_all();
        }
        each.names.clear();
    }
    const std::lock_guard lock{stays_mutex_};
    stays_.clear();
}

std::shared_ptr<grant> retained_leases::take(const std::string& name, std::string_view thread,
                                             std::string_view note,
                                             std::chrono::steady_clock::time_point until,
                                             const std::stop_token& stop) {
    if (!enabled_) return nullptr;
    const auto kept = find(name);
    if (!kept) return nullptr;
    std::unique_lock lock{kept->mutex_};
    auto now = clock_.now();
    const auto is_over = [&] { return kept->recalled_ || now >= kept->until_; };
    // The thread that gives back has it on its list.
    const auto is_on_its_way = [&] {
        return kept->now_ == retained_lease::state::returning ||
               (kept->now_ == retained_lease::state::idle && is_over());
    };
    const auto is_settled = [&] {
        now = clock_.now();
        return !is_on_its_way() || !enabled_;
    };
    if (is_on_its_way() && !wait(*kept, lock, until, stop, is_settled)) return nullptr;
    if (kept->now_ != retained_lease::state::idle || is_over() || !enabled_) return nullptr;
    auto granted = kept->idle_;
    granted->thread = thread;
    granted->note = note;
    granted->made_at = now;
    kept->idle_.reset();
    kept->now_ = retained_lease::state::in_use;
    granted->stopped = false;
    granted->given_back = true;  // if it is lost meanwhile no caller has received it
    // A thread that declares the session's leases lost closes the trust window first: it sees the
    // state held, or this sees the window closed.
    auto expected = grant::state::idle;
    const bool ours = granted->now.compare_exchange_strong(expected, grant::state::held);
    if (!ours || !granted->session_trust->open(clock_.now())) {
        granted->stopped = true;
        granted->now = grant::state::lost;
        end(*kept);
        return nullptr;
    }
    granted->given_back = false;
    // The heartbeat may have denied it in between.
    if (granted->now != grant::state::held) {
        granted->stopped = true;
        end(*kept);
        return nullptr;
    }
    kept->holder_ = granted;
    ++kept->local_grants_;
    return granted;
}

bool retained_leases::keep(const grant& held, const successor& succeed) noexcept {
    const auto& kept = held.kept_as;
    if (!kept || !enabled_ || held.fenced || held.requested) return false;
    try {
        const std::lock_guard lock{kept->mutex_};
        if (kept->now_ != retained_lease::state::in_use || kept->kept_ != held.grant_id) {
            return false;
        }
        if (kept->recalled_ || held.token.value() >= kept->last_) return false;
        if (clock_.now() >= kept->fresh_ || !enabled_) return false;
        kept->idle_ = succeed(held, held.token.value() + 1, kept->last_, kept);
        if (!kept->idle_) return false;
        kept->now_ = retained_lease::state::idle;
        return true;
    } catch (...) {
        return false;  // no memory
    }
}

std::optional<std::int64_t> retained_leases::begin(grant& held, bool contended) {
    if (!enabled_ || !held.may_be_kept) return std::nullopt;
    const auto kept = held.kept_as ? held.kept_as : find_or_make(held.name);
    const std::lock_guard lock{kept->mutex_};
    const bool goes_on =
        kept->now_ == retained_lease::state::in_use && kept->kept_ == held.grant_id;
    // A grant whose end came otherwise: lost, adopted, released in a transaction.
    if (!goes_on && kept->now_ == retained_lease::state::in_use) end(*kept);
    if (!goes_on && kept->now_ != retained_lease::state::absent) return std::nullopt;
    if (contended || held.fenced || held.requested || (goes_on && kept->recalled_)) {
        if (goes_on) end(*kept);
        kept->policy_.interrupted();
        if (contended) kept->policy_.contended(clock_.now());
        return std::nullopt;
    }
    if (!goes_on) {
        if (!kept->policy_.released(held.row_token, clock_.now())) return std::nullopt;
        const std::lock_guard stays{stays_mutex_};
        if (stays_.size() >= static_cast<std::size_t>(options_.names)) return std::nullopt;
        stays_.emplace(held.grant_id, kept);
        kept->kept_ = held.grant_id;
        kept->recalled_ = kept->answered_ = false;
        kept->local_grants_ = 0;
        kept->first_ = kept->last_ = held.row_token;
    }
    kept->now_ = retained_lease::state::reserving;
    held.kept_as = kept;
    return held.row_token + kept->policy_.next_block(held.token.value() - kept->first_);
}

bool retained_leases::kept(const grant& held, std::int64_t last, nanoseconds sent,
                           const successor& succeed) {
    const auto& kept = held.kept_as;
    const std::lock_guard lock{kept->mutex_};
    if (kept->now_ != retained_lease::state::reserving || kept->kept_ != held.grant_id) {
        return false;
    }
    kept->first_ = held.row_token + 1;
    kept->last_ = last;
    if (!kept->recalled_ && !held.fenced && enabled_) {
        kept->until_ = sent + options_.longest;
        kept->fresh_ = sent + options_.longest / 2;
        kept->idle_ = succeed(held, kept->first_, last, kept);
        if (kept->idle_) {
            kept->now_ = retained_lease::state::idle;
            return true;
        }
    }
    end(*kept);
    return false;
}

void retained_leases::abandoned(const grant& held) noexcept {
    const auto& kept = held.kept_as;
    if (!kept) return;
    const std::lock_guard lock{kept->mutex_};
    if (kept->now_ == retained_lease::state::reserving && kept->kept_ == held.grant_id) {
        end(*kept);
        kept->policy_.contended(clock_.now());
    }
}

bool retained_leases::keeps(grant_id grant_id) const noexcept {
    const auto kept = find(grant_id);
    if (!kept) return false;
    const std::lock_guard lock{kept->mutex_};
    return kept->kept_ == grant_id && !kept->recalled_;
}

bool retained_leases::recall(grant_id grant_id) noexcept {
    const auto kept = find(grant_id);
    if (!kept) return false;
    {
        const std::lock_guard lock{kept->mutex_};
        if (kept->kept_ != grant_id || kept->recalled_) return false;
        kept->recalled_ = true;
    }
    ++recalls_;
    if (on_work_) on_work_();
    return true;
}

void retained_leases::recall_name(const std::string& name) noexcept {
    if (!enabled_) return;
    grant_id its{};
    if (const auto kept = find(name)) {
        const std::lock_guard lock{kept->mutex_};
        its = kept->kept_;
    }
    if (its != grant_id{}) recall(its);
}

void retained_leases::fetch_back(const std::string& name,
                                 std::chrono::steady_clock::time_point until,
                                 const std::stop_token& stop) {
    if (!enabled_) return;
    const auto kept = find(name);
    if (!kept) return;
    recall_name(name);
    std::unique_lock lock{kept->mutex_};
    const auto soon = std::chrono::steady_clock::now() + 50ms;
    static_cast<void>(wait(*kept, lock, std::max(until, soon), stop, [&] {
        return !enabled_ || (kept->now_ != retained_lease::state::returning &&
                             kept->now_ != retained_lease::state::idle);
    }));
}

template <typename Test>
bool retained_leases::wait(retained_lease& which, std::unique_lock<std::mutex>& lock,
                           std::chrono::steady_clock::time_point until, const std::stop_token& stop,
                           Test test) {
    // A database that is out of reach answers later, or never: the caller then hears so from it.
    const auto longest = std::chrono::steady_clock::now() + 5s;
    return which.given_back_.wait_until(lock, stop, std::min(until, longest), test);
}

void retained_leases::answered(const grant& holder) noexcept {
    const auto& kept = holder.kept_as;
    const std::lock_guard lock{kept->mutex_};
    if (kept->kept_ == holder.grant_id) kept->answered_ = true;
}

retained_leases::work retained_leases::overdue() {
    work found;
    std::vector<std::shared_ptr<retained_lease>> all;
    {
        const std::lock_guard lock{stays_mutex_};
        all.reserve(stays_.size());
        for (const auto& [id, kept] : stays_) all.push_back(kept);
    }
    found.recalled.reserve(all.size());
    found.over.reserve(all.size());
    found.in_use.reserve(all.size());
    const auto now = clock_.now();
    const auto together = std::min<nanoseconds>(most_together, options_.longest / 8);
    for (const auto& kept : all) {
        const std::lock_guard lock{kept->mutex_};
        if (kept->now_ == retained_lease::state::reserving) {
            found.next = std::min<nanoseconds>(found.next, now + options_.longest);
            continue;
        }
        if (kept->now_ == retained_lease::state::in_use) {
            auto holder = kept->holder_.lock();
            if (!holder || holder->now == grant::state::lost ||
                holder->now == grant::state::released) {
                end(*kept);  // as in begin()
                continue;
            }
            if (kept->answered_) continue;
            if (!kept->recalled_ && now < kept->until_) {
                found.next = std::min(found.next, kept->until_);
                continue;
            }
            // Without a recall, too, which may have been lost: a search for deadlocks needs it.
            kept->recalled_ = true;
            found.in_use.push_back(std::move(holder));
            continue;
        }
        if (kept->now_ != retained_lease::state::idle) continue;
        if (!kept->recalled_ && now + together < kept->until_) {
            found.next = std::min(found.next, kept->until_);
            continue;
        }
        const auto idle = std::move(kept->idle_);
        const bool recalled = kept->recalled_;
        kept->now_ = retained_lease::state::returning;
        idle->given_back = true;
        idle->may_be_kept = false;
        idle->queued = recalled;  // a waiter is to be expected
        auto expected = grant::state::idle;
        if (!idle->now.compare_exchange_strong(expected, grant::state::held)) {
            end(*kept);
            continue;
        }
        (recalled ? found.recalled : found.over).push_back(idle);
    }
    return found;
}

void retained_leases::returned(const grant& given_back) noexcept {
    const auto& kept = given_back.kept_as;
    const std::lock_guard lock{kept->mutex_};
    if (kept->now_ == retained_lease::state::returning && kept->kept_ == given_back.grant_id) {
        end(*kept);
    }
}

retained_leases::shard& retained_leases::shard_of(const std::string& name) noexcept {
    return shards_[std::hash<std::string>{}(name) % shards];
}

std::shared_ptr<retained_lease> retained_leases::find(const std::string& name) {
    auto& its = shard_of(name);
    const std::lock_guard lock{its.mutex};
    const auto found = its.names.find(name);
    return found == its.names.end() ? nullptr : found->second;
}

std::shared_ptr<retained_lease> retained_leases::find_or_make(const std::string& name) {
    auto& its = shard_of(name);
    const std::lock_guard lock{its.mutex};
    if (its.names.size() >= most_names) {
        // Names that only this map refers to: no grant is kept, or about to be.
        std::erase_if(its.names, [](const auto& each) { return each.second.use_count() == 1; });
    }
    auto& slot = its.names[name];
    if (!slot) slot = std::make_shared<retained_lease>();
    return slot;
}

std::shared_ptr<retained_lease> retained_leases::find(grant_id grant_id) const noexcept {
    const std::lock_guard lock{stays_mutex_};
    const auto found = stays_.find(grant_id);
    return found == stays_.end() ? nullptr : found->second;
}

/// With the mutex of `which` held.
void retained_leases::end(retained_lease& which) noexcept {
    which.policy_.ended(which.local_grants_, which.recalled_, which.last_);
    which.now_ = retained_lease::state::absent;
    which.idle_.reset();
    which.holder_.reset();
    which.given_back_.notify_all();
    const auto kept = std::exchange(which.kept_, grant_id{});
    const std::lock_guard lock{stays_mutex_};
    stays_.erase(kept);
}

}  // namespace rowlock::detail
