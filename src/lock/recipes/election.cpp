#include "base/jitter.hpp"
#include "base/require.hpp"
#include "base/utf8.hpp"
#include "lock/client/retry_limits.hpp"
#include "lock/recipes/elections.hpp"
#include "lock/session/grant.hpp"
#include <rowlock/election.hpp>
#include <rowlock/error.hpp>

#include <algorithm>
#include <functional>
#include <utility>

namespace rowlock {
namespace {

using detail::grant;

void validate_value(const std::string& value) {
    require(utf8::is_text(value, 1000),
            "the value of a leader must be UTF-8 of at most 1000 bytes without NUL");
}

/// @throws error if the term is over
std::shared_ptr<detail::engine> engine_of(const std::shared_ptr<grant>& held) {
    if (!held) throw error{errc::not_owner, "this leadership was moved from"};
    held->fork.require_same_process();
    auto engine = held->owner.lock();
    if (!engine) throw detail::client_destroyed();
    return engine;
}

std::optional<leader_info> leader_in(const lease_info& seen) {
    if (!detail::has_live_holder(seen)) return std::nullopt;
    return leader_info{.term = seen.token, .value = seen.holder->note, .who = *seen.holder};
}

}  // namespace

namespace detail {

using steady = std::chrono::steady_clock;

/// On MySQL a row that had this value already does not count as changed.
template <typename Change>
bool elections::change(const grant& held, Change how) {
    return retries_.change([&](sql::connection& db, sql::deadline until, auto& change) {
        return change([&] { return how(db, until); }) ||
               context_.queues.read_served(db, held.name, held.session_id, held.grant_id, until)
                   .has_value();
    });
}

std::vector<waiter_info> elections::candidates(const std::string& name) {
    context_.fork.require_same_process();
    auto all = retries_.on_connection([&](sql::connection& db, sql::deadline until) {
        return context_.leases.queue(db, name, until);
    });
    std::erase_if(all, [](const auto& each) { return each.locks > 1; });
    std::ranges::stable_sort(all, std::greater<>{}, &waiter_info::priority);
    return all;
}

std::optional<protocol::candidate> elections::next(const grant& held,
                                                   std::optional<session_id> of) {
    return retries_.on_connection([&](sql::connection& db, sql::deadline until) {
        return protocol_.next(db, held.name, of, until);
    });
}

/// One that comes after this look waits for the next election: a leader is not deposed.
bool elections::yield(grant& held, int priority, steady::time_point until,
                      const std::stop_token& stop) {
    const auto seen = retries_.on_connection(retries_.failure_deadline(until), stop,
                                             [&](sql::connection& db, sql::deadline end) {
                                                 return protocol_.next(db, held.name, {}, end);
                                             });
    if (!seen) return true;
    const auto& first = *seen;
    if (!first || first->priority <= priority || first->heir == held.grant_id) return false;
    static_cast<void>(releaser_.hand_over_to(held, first->entry));
    return true;
}

/// As a waiter does (acquirer::outlasts).
bool elections::outlasts(const error& failure, steady::time_point until,
                         const std::stop_token& stop) {
    const auto& options = context_.options;
    if (options.when_cut_off != when_cut_off::requeue || retries_.closed()) return false;
    if (!may_be_outlasted(failure) || steady::now() >= until) return false;
    return retries_.pause(base::shortened(nanoseconds{options.retry.max_backoff}), stop);
}

/// If the candidates cannot be read the lease is released as any other is.
void elections::step_down(grant& held) {
    std::optional<protocol::candidate> heir;
    try {
        if (held.held()) heir = next(held);
    } catch (const error&) {
        // The release says what is wrong, and is repeated in the background.
    }
    if (heir) {
        static_cast<void>(releaser_.hand_over_to(held, heir->entry));
    } else {
        releaser_.release(held);
    }
}

bool elections::step_down(grant& held, session_id to) {
    if (!held.held()) {
        releaser_.release(held);  // throws if it was lost
        return false;
    }
    const auto chosen = next(held, to);
    if (!chosen) return false;
    const bool ours = change(held, [&](sql::connection& db, sql::deadline until) {
        return protocol_.choose_heir(db, held.name, held.session_id, held.grant_id,
                                     chosen->entry.grant_id, until);
    });
    if (!ours) releaser_.refuse(held);
    return releaser_.hand_over_to(held, chosen->entry);
}

bool elections::proclaim(const grant& held, const std::string& value) {
    return change(held, [&](sql::connection& db, sql::deadline until) {
        return protocol_.proclaim(db, held.name, held.session_id, held.grant_id, value, until);
    });
}

}  // namespace detail

void leadership::proclaim(const std::string& value) {
    validate_value(value);
    const auto engine = engine_of(lease_.grant_);
    auto& held = *lease_.grant_;
    if (held.held() && engine->part<detail::elections>().proclaim(held, value)) return;
    engine->releases().require_held(held);
    engine->releases().refuse(held);
}

void leadership::step_down() {
    if (!lease_.grant_) return;
    const auto engine = lease_.grant_->owner.lock();
    if (!engine || lease_.grant_->fork.in_child()) return lease_.release();
    engine->part<detail::elections>().step_down(*lease_.grant_);
}

bool leadership::step_down(session_id to) {
    return engine_of(lease_.grant_)->part<detail::elections>().step_down(*lease_.grant_, to);
}

std::optional<election_state> election_observer::state_of(std::optional<lease_info> seen) {
    if (!seen) return std::nullopt;
    return election_state{.term = seen->token, .leader = leader_in(*seen)};
}

election::election(client& locks, const lock_name& name, election_options options)
    : locks_{&locks}, name_{name}, options_{std::move(options)} {
    validate_value(options_.value);
    require(options_.priority >= -1000 && options_.priority <= 1000,
            "the priority of a candidate must be from -1000 to 1000");
}

/// What fails between the election and the return costs the term, not the candidacy.
std::optional<leadership> election::campaign_until(time_point until, const std::stop_token& stop) {
    const auto engine = locks_->engine_;  // until the call learns of the client's destruction
    auto& offices = engine->part<detail::elections>();
    const acquire_options how{.note = options_.value};
    while (auto granted = engine->acquires().acquire(name_, until, stop, how, {}, {},
                                                     options_.priority, true)) {
        const auto grant = granted;
        leadership term{rowlock::lease{std::move(granted)}};
        try {
            if (!offices.yield(*grant, options_.priority, until, stop) && term.held()) {
                grant->withheld = false;
                return term;
            }
        } catch (const error& failure) {
            term = leadership{{}};  // released
            if (!offices.outlasts(failure, until, stop)) throw;
        }
    }
    return std::nullopt;
}

leadership election::campaign() {
    return *campaign_until(time_point::max(), {});
}

std::optional<leadership> election::try_campaign() {
    return campaign_until(time_point::min(), {});
}

bool election::ended(leadership& term) {
    try {
        term.step_down();
        return true;
    } catch (const error& failure) {
        if (failure.kind() != errc::lock_lost) throw;
        return false;
    }
}

std::optional<leader_info> election::leader() {
    const auto seen = locks_->inspect(name_);
    return seen ? leader_in(*seen) : std::nullopt;
}

std::vector<candidate_info> election::candidates() {
    std::vector<candidate_info> shown;
    for (auto& each : locks_->engine_->part<detail::elections>().candidates(name_.str())) {
        shown.push_back({.session = each.session,
                         .priority = static_cast<int>(each.priority),
                         .value = std::move(each.note),
                         .owner = std::move(each.owner),
                         .host = std::move(each.host),
                         .program = std::move(each.program),
                         .pid = each.pid,
                         .waited = each.waited});
    }
    return shown;
}

election_observer election::observe(const watch_options& options) {
    return election_observer{locks_->watch(name_, options)};
}

}  // namespace rowlock
