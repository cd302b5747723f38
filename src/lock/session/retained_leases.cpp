#include "lock/session/retained_leases.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <utility>

namespace rowlock::detail {

using namespace std::chrono_literals;

namespace {

/// Leases whose time is up within this are given back together.
constexpr nanoseconds most_together = 20ms;

}  // namespace

/// The lease of one name that the client may keep. Guarded by its mutex; see retained_leases.
struct retained_lease {
    enum class state : unsigned char {
        absent,  ///< the database's grant, if the client has one, is not kept
        /// It is about to be: a statement is under way that reserves tokens.
        reserving,
        in_use,     ///< a thread holds it
        idle,       ///< no thread does
        returning,  ///< a statement is under way that gives it back
    };

    std::mutex mutex;
    std::condition_variable_any given_back;
    state now = state::absent;
    grant_id kept{};
    bool recalled = false;   ///< no further local grant: another client wants the lease
    bool answered = false;   ///< its row names the thread that holds it
    nanoseconds until{0};    ///< no local grant from then on
    nanoseconds fresh{0};    ///< from then on a release reserves anew
    std::int64_t first = 0;  ///< of the tokens that are reserved
    std::int64_t last = 0;
    std::int64_t local_grants = 0;  ///< of this stay
    std::shared_ptr<grant> idle{};
    std::weak_ptr<grant> holder{};
    retention_policy policy;
};

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
            const std::lock_guard its{kept->mutex};
            kept->idle.reset();
            kept->now = retained_lease::state::absent;
            kept->given_back.notify_all();
        }
        each.names.clear();
    }
    const std::lock_guard lock{stays_mutex_};
    stays_.clear();
}

retained_leases::taken retained_leases::take(const std::string& name, std::string_view thread,
                                             std::string_view note,
                                             std::chrono::steady_clock::time_point until,
                                             const std::stop_token& stop) {
    if (!enabled_) return {};
    const auto kept = find(name);
    if (!kept) return {};
    std::unique_lock lock{kept->mutex};
    auto now = clock_.now();
    const auto is_over = [&] { return kept->recalled || now >= kept->until; };
    // The thread that gives back has it on its list.
    const auto is_on_its_way = [&] {
        return kept->now == retained_lease::state::returning ||
               (kept->now == retained_lease::state::idle && is_over());
    };
    const auto is_settled = [&] {
        now = clock_.now();
        return !is_on_its_way() || !enabled_;
    };
    if (is_on_its_way() && !wait(*kept, lock, until, stop, is_settled)) {
        return {.timed_out = std::chrono::steady_clock::now() >= until};
    }
    if (kept->now != retained_lease::state::idle || is_over() || !enabled_) {
        return {.in_use = is_in_use(*kept)};
    }
    auto granted = kept->idle;
    granted->thread = thread;
    granted->note = note;
    granted->made_at = now;
    kept->idle.reset();
    kept->now = retained_lease::state::in_use;
    granted->stopped = false;
    granted->unclaimed = true;  // if it is lost meanwhile no caller has received it
    // A thread that declares the session's leases lost closes the trust window first: it sees the
    // state held, or this sees the window closed.
    auto expected = grant::state::idle;
    const bool ours = granted->now.compare_exchange_strong(expected, grant::state::held);
    if (!ours || !granted->session_trust->open(clock_.now())) {
        granted->stopped = true;
        granted->now = grant::state::lost;
        end(*kept);
        return {};
    }
    granted->unclaimed = false;
    // The heartbeat may have denied it in between.
    if (granted->now != grant::state::held) {
        granted->stopped = true;
        end(*kept);
        return {};
    }
    kept->holder = granted;
    ++kept->local_grants;
    return {.granted = std::move(granted)};
}

bool retained_leases::keep(const grant& held, const successor& succeed) noexcept {
    const auto& kept = held.kept_as;
    if (!kept || !enabled_ || held.fenced || held.requested) return false;
    try {
        const std::lock_guard lock{kept->mutex};
        if (kept->now != retained_lease::state::in_use || kept->kept != held.grant_id) {
            return false;
        }
        if (kept->recalled || held.token.value() >= kept->last) return false;
        if (clock_.now() >= kept->fresh || !enabled_) return false;
        kept->idle = succeed(held, held.token.value() + 1, kept->last, kept);
        if (!kept->idle) return false;
        kept->now = retained_lease::state::idle;
        return true;
    } catch (...) {
        return false;  // no memory
    }
}

std::optional<std::int64_t> retained_leases::begin(grant& held, bool contended) {
    if (!enabled_ || !held.may_be_kept) return std::nullopt;
    const auto kept = held.kept_as ? held.kept_as : find_or_make(held.name);
    const std::lock_guard lock{kept->mutex};
    const bool goes_on = kept->now == retained_lease::state::in_use && kept->kept == held.grant_id;
    // A grant whose end came otherwise: lost, adopted, released in a transaction.
    if (!goes_on && kept->now == retained_lease::state::in_use) end(*kept);
    if (!goes_on && kept->now != retained_lease::state::absent) return std::nullopt;
    if (contended || held.fenced || held.requested || (goes_on && kept->recalled)) {
        if (goes_on) end(*kept);
        if (contended) {
            kept->policy.contended(clock_.now());
        } else {
            kept->policy.interrupted();
        }
        return std::nullopt;
    }
    if (!goes_on) {
        if (!kept->policy.released(held.row_token, clock_.now())) return std::nullopt;
        const std::lock_guard stays{stays_mutex_};
        if (stays_.size() >= static_cast<std::size_t>(options_.names)) return std::nullopt;
        stays_.emplace(held.grant_id, kept);
        kept->kept = held.grant_id;
        kept->recalled = kept->answered = false;
        kept->local_grants = 0;
        kept->first = kept->last = held.row_token;
    }
    kept->now = retained_lease::state::reserving;
    if (!held.kept_as) {
        held.kept_as = kept;
        held.has_successors = true;
    }
    return held.row_token + kept->policy.next_block(held.token.value() - kept->first);
}

bool retained_leases::kept(const grant& held, std::int64_t last, nanoseconds sent,
                           const successor& succeed) {
    const auto& kept = held.kept_as;
    const std::lock_guard lock{kept->mutex};
    if (kept->now != retained_lease::state::reserving || kept->kept != held.grant_id) {
        return false;
    }
    kept->first = held.row_token + 1;
    kept->last = last;
    if (!kept->recalled && !held.fenced && enabled_) {
        kept->until = sent + options_.longest;
        kept->fresh = sent + options_.longest / 2;
        kept->idle = succeed(held, kept->first, last, kept);
        if (kept->idle) {
            kept->now = retained_lease::state::idle;
            return true;
        }
    }
    end(*kept);
    return false;
}

void retained_leases::abandoned(const grant& held) noexcept {
    const auto& kept = held.kept_as;
    if (!kept) return;
    const std::lock_guard lock{kept->mutex};
    if (kept->now == retained_lease::state::reserving && kept->kept == held.grant_id) {
        end(*kept);
        kept->policy.contended(clock_.now());
    }
}

bool retained_leases::keeps(grant_id grant_id) const noexcept {
    const auto kept = find(grant_id);
    if (!kept) return false;
    const std::lock_guard lock{kept->mutex};
    return kept->kept == grant_id && !kept->recalled;
}

bool retained_leases::recall(grant_id grant_id) noexcept {
    const auto kept = find(grant_id);
    if (!kept) return false;
    {
        const std::lock_guard lock{kept->mutex};
        if (kept->kept != grant_id || kept->recalled) return false;
        kept->recalled = true;
    }
    if (on_work_) on_work_();
    return true;
}

void retained_leases::recall_name(const std::string& name) noexcept {
    if (!enabled_) return;
    grant_id its{};
    if (const auto kept = find(name)) {
        const std::lock_guard lock{kept->mutex};
        its = kept->kept;
    }
    if (its != grant_id{}) recall(its);
}

void retained_leases::fetch_back(const std::vector<std::string>& names,
                                 std::chrono::steady_clock::time_point until,
                                 const std::stop_token& stop) {
    if (!enabled_) return;
    for (const auto& each : names) recall_name(each);
    const auto end = std::max(until, std::chrono::steady_clock::now() + 50ms);
    for (const auto& each : names) {
        const auto kept = find(each);
        if (!kept) continue;
        recall_name(each);  // it may have been taken, and retained anew, meanwhile
        std::unique_lock lock{kept->mutex};
        static_cast<void>(wait(*kept, lock, end, stop, [&] {
            return !enabled_ || (kept->now != retained_lease::state::returning &&
                                 kept->now != retained_lease::state::idle);
        }));
    }
}

template <typename Test>
bool retained_leases::wait(retained_lease& which, std::unique_lock<std::mutex>& lock,
                           std::chrono::steady_clock::time_point until, const std::stop_token& stop,
                           Test test) {
    // A database that is out of reach answers later, or never: the caller then hears so from it.
    const auto longest = std::chrono::steady_clock::now() + 5s;
    return which.given_back.wait_until(lock, stop, std::min(until, longest), test);
}

void retained_leases::answered(const grant& holder) noexcept {
    const auto& kept = holder.kept_as;
    const std::lock_guard lock{kept->mutex};
    if (kept->kept == holder.grant_id) kept->answered = true;
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
        const std::lock_guard lock{kept->mutex};
        if (kept->now == retained_lease::state::reserving) {
            found.next = std::min<nanoseconds>(found.next, now + options_.longest);
            continue;
        }
        if (kept->now == retained_lease::state::in_use) {
            auto holder = kept->holder.lock();
            if (!holder || holder->now == grant::state::lost ||
                holder->now == grant::state::released) {
                end(*kept);  // as in begin()
                continue;
            }
            if (!kept->answered && !kept->recalled && now < kept->until) {
                found.next = std::min(found.next, kept->until);
                continue;
            }
            // Its holder may be lost without a release.
            found.next = std::min<nanoseconds>(found.next,
                                               now + std::max<nanoseconds>(options_.longest, 1s));
            if (kept->answered) continue;
            // Without a recall, too, which may have been lost: a search for deadlocks needs it.
            kept->recalled = true;
            found.in_use.push_back(std::move(holder));
            continue;
        }
        if (kept->now != retained_lease::state::idle) continue;
        if (!kept->recalled && now + together < kept->until) {
            found.next = std::min(found.next, kept->until);
            continue;
        }
        const auto idle = std::move(kept->idle);
        const bool recalled = kept->recalled;
        kept->now = retained_lease::state::returning;
        idle->unclaimed = true;
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
    const std::lock_guard lock{kept->mutex};
    if (kept->now == retained_lease::state::returning && kept->kept == given_back.grant_id) {
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

/// With the mutex of `which` held, as the next.
bool retained_leases::is_in_use(const retained_lease& which) const noexcept {
    if (which.recalled || !enabled_) return false;
    if (which.now == retained_lease::state::reserving) return true;
    const auto now = clock_.now();
    if (which.now != retained_lease::state::in_use || now >= which.until) return false;
    const auto holder = which.holder.lock();
    if (!holder || !holder->session_trust->open(now)) return false;
    const auto state = holder->now.load();
    return state == grant::state::held || state == grant::state::releasing;
}

void retained_leases::end(retained_lease& which) noexcept {
    which.policy.ended(which.local_grants, which.recalled, which.last);
    which.now = retained_lease::state::absent;
    which.idle.reset();
    which.holder.reset();
    which.given_back.notify_all();
    const auto kept = std::exchange(which.kept, grant_id{});
    const std::lock_guard lock{stays_mutex_};
    stays_.erase(kept);
}

}  // namespace rowlock::detail
