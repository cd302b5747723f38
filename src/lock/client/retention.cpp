#include "lock/client/retention.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// How many leases are given back by one statement.
constexpr std::size_t at_once = 32;
/// A release that took longer has failed, most often.
constexpr nanoseconds slow = 2s;
/// Until what failed is tried again.
constexpr nanoseconds retry = 100ms;
/// A statement that began beside another has committed by then, most often.
constexpr nanoseconds beside = 5ms;
/// For a statement that may meet a locked row.
constexpr auto brief = 250ms;

}  // namespace

retention::retention(client_context& context, client_connections& connections,
                     session_keeper& keeper, grant_lifecycle& lifecycle, client_waiters& waiting,
                     std::function<void(grants)> release)
    : context_{context},
      connections_{connections},
      keeper_{keeper},
      lifecycle_{lifecycle},
      waiting_{waiting},
      release_{std::move(release)},
      succeed_{[&lifecycle](const grant& before, std::int64_t token, std::int64_t row_token,
                            std::shared_ptr<retained_lease> kept_as) {
          return lifecycle.succeed(before, token, row_token, std::move(kept_as));
      }} {
    context_.retained.when_recalled([this] {
        context_.count(counter::recalls);
        poke();
    });
}

retained_leases::taken retention::take(const lock_name& name, const std::string& thread,
                                       const acquire_options& options,
                                       std::chrono::steady_clock::time_point until,
                                       const std::stop_token& stop) {
    if (options.max_duration || options.queueing == queueing::barging) return {};
    auto found = context_.retained.take(name.str(), thread, options.note, until, stop);
    if (!found.granted) return found;
    context_.count(counter::acquired);
    context_.count(counter::local_grants);
    context_.report(event_kind::lease_acquired, *found.granted);
    return found;
}

bool retention::keep(grant& held) noexcept {
    if (context_.retained.keep(held, succeed_)) return true;
    if (!context_.retained.enabled() || !held.may_be_kept) return false;
    try {
        return reserve(held);
    } catch (...) {
        // It is released: whether its tokens were reserved makes no difference to that.
        context_.retained.abandoned(held);
        held.queued = true;
        return false;
    }
}

/// Reserves tokens in the row. If that fails because a client waits, the release hands the lease
/// over.
bool retention::reserve(grant& held) {
    const bool contended = held.queued || waiting_.contended().has(held.name);
    const auto last = context_.retained.begin(held, contended);
    if (!last) {
        // A recall: another client waits.
        held.queued = held.queued || held.kept_as;
        return false;
    }
    start();
    const protocol::grant_to_retain which{.name = held.name,
                                          .session = held.session_id,
                                          .grant_id = held.grant_id,
                                          .token = held.row_token,
                                          .last_of = *last};
    nanoseconds sent{0};
    const auto until = context_.statement_deadline();
    const bool reserved = [&] {
        const auto db = connections_.take(until);
        sent = context_.now();
        return context_.leases.retain(*db, which, until);
    }();
    if (reserved && context_.retained.kept(held, *last, sent, succeed_)) {
        check_soon(held.name);
        return true;
    }
    if (!reserved) context_.retained.abandoned(held);
    held.queued = true;  // another client waits, or it costs a round trip to learn what else it is
    return false;
}

void retention::start() {
    const std::lock_guard lock{mutex_};
    if (worker_ || stopping_) return;
    worker_ = std::make_unique<base::worker>(context_.clock, [this] { return step(); });
    keeper_.poke();  // PostgreSQL: with its next heartbeat the session listens for recalls
}

void retention::poke() {
    const std::lock_guard lock{mutex_};
    if (worker_) worker_->poke();
}

/// A ticket may have been committed beside the statement that reserved the tokens: neither saw the
/// other.
void retention::check_soon(const std::string& name) noexcept {
    const std::lock_guard lock{mutex_};
    try {
        fresh_.push_back({name, context_.now() + beside});
    } catch (...) {
        return;  // no memory; the lease is retained by now, and its time ends
    }
    if (fresh_.size() > 1) return;
    check_at_ = fresh_.front().at;
    if (worker_) worker_->poke();
}

void retention::recall_waited() {
    std::vector<std::string> names;
    {
        const std::lock_guard lock{mutex_};
        const auto now = context_.now();
        if (now < check_at_) return;
        const auto rest = std::ranges::find_if(fresh_, [&](const auto& it) { return it.at > now; });
        for (auto each = fresh_.begin(); each != rest; ++each) names.push_back(each->name);
        fresh_.erase(fresh_.begin(), rest);
        // At most one statement in this time, each name after 5 to 10 ms.
        check_at_ = fresh_.empty() ? base::alarm::never : now + beside;
    }
    const auto until = context_.statement_deadline();
    const auto db = connections_.take(until);
    for (const auto& each : context_.queues.names_with_waiters(*db, names, until)) {
        context_.retained.recall_name(each);
    }
}

nanoseconds retention::step() noexcept {
    nanoseconds next = context_.now() + retry;
    try {
        recall_waited();
    } catch (...) {
        // A waiter that was missed gets the lease when its time is up.
    }
    try {
        const auto found = context_.retained.overdue();
        next = found.next;
        bool failing = false;
        give_back(found.recalled, failing);
        // The client that recalled it came alone: it found no queue.
        for (const auto& each : found.recalled) waiting_.contended().forget(each->name);
        for (const auto& each : found.in_use) {
            if (stopping_) break;
            if (!name_holder(*each)) next = std::min(next, context_.now() + retry);
        }
        give_back(found.over, failing);
    } catch (...) {
        next = context_.now() + retry;  // no memory
    }
    const std::lock_guard lock{mutex_};
    return std::min(next, check_at_);
}

/// After a failure the heartbeat does the rest: each attempt may take seconds.
void retention::give_back(grants all, bool& failing) noexcept {
    while (!all.empty()) {
        const auto some = all.first(std::min(all.size(), at_once));
        all = all.subspan(some.size());
        const auto began = context_.now();
        if (!failing && !stopping_) release_(some);
        failing = failing || context_.now() - began > slow;
        for (const auto& each : some) {
            if (each->now == grant::state::held) lifecycle_.give_back(*each);
            context_.retained.returned(*each);
        }
    }
}

/// Returns false if it is to be tried again. The first fence of a local grant has done it already,
/// if it got so far.
bool retention::name_holder(const grant& held) noexcept {
    try {
        if (held.local && held.now == grant::state::held) {
            // A fence that comes meanwhile may lock the row for long.
            const auto until =
                std::min(context_.statement_deadline(), std::chrono::steady_clock::now() + brief);
            const auto db = connections_.take(until);
            const std::int64_t token = held.row_token;
            static_cast<void>(context_.name_holder(*db, held, token, token, until));
        }
        context_.retained.answered(held);
        return true;
    } catch (...) {
        return false;
    }
}

void retention::begin_stop() noexcept {
    stopping_ = true;
    context_.retained.close();
    const std::lock_guard lock{mutex_};
    if (worker_) worker_->stop();
}

void retention::join() noexcept {
    std::unique_ptr<base::worker> ended;  // joined when the mutex is free
    const std::lock_guard lock{mutex_};
    ended.swap(worker_);
}

}  // namespace rowlock::detail
