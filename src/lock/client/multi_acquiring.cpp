// Several locks at once, or parts of them: an attempt for all of them, then an entry in each of
// their queues.

#include "base/jitter.hpp"
#include "base/require.hpp"
#include "lock/client/acquirer.hpp"
#include "lock/client/multi_acquisition.hpp"
#include "lock/client/shared_labels.hpp"
#include "lock/client/validation.hpp"
#include "lock/queue/waiting_threads.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace rowlock::detail {
namespace {

using outcome = protocol::attempt::outcome;

[[noreturn]] void refuse(const std::string& held) {
    throw error{errc::would_deadlock,
                "this thread holds \"" + held + "\" already: release that first"};
}

/// What a request refers to.
struct request_parts {
    request_parts(const multi_acquisition& all, bool queued_)
        : entries{all.entries()}, queued{queued_} {}

    [[nodiscard]] protocol::multi_request of(const multi_acquisition& all) const {
        const auto single = all.call.request();
        return {.names = entries,
                .session = single.session,
                .thread = single.thread,
                .note = single.note,
                .deadline_us = single.deadline_us,
                .queued = queued,
                .barging = single.barging,
                .blocks = single.blocks,
                .limit_us = single.limit_us};
    }

    const std::vector<protocol::wanted_name> entries;
    const bool queued;
};

const std::string& wanted_name(const wanted_lock& lock) {
    return lock.name.str();
}

/// In byte order, each once.
std::vector<wanted_lock> ordered(std::vector<wanted_lock> locks) {
    require(!locks.empty(), "acquire_all needs at least one name");
    require(locks.size() <= protocol::most_names, "acquire_all takes at most 16 names at once");
    std::ranges::sort(locks, {}, wanted_name);
    const bool twice = std::ranges::adjacent_find(locks, {}, wanted_name) != locks.end();
    require(!twice, "acquire_all was given a name twice: it is held once, in one mode");
    return locks;
}

}  // namespace

std::vector<std::shared_ptr<grant>> acquirer::acquire_several(std::vector<wanted_lock> wanted,
                                                              steady::time_point until,
                                                              const std::stop_token& stop,
                                                              const acquire_options& options) {
    context_.fork.require_same_process();
    validate(options);
    const auto locks = ordered(std::move(wanted));
    const auto& first = locks.front();
    multi_acquisition all{{.context = context_,
                           .grants = grants_,
                           .name = first.name,
                           .options = options,
                           .stop = stop,
                           .until = until,
                           .thread = thread_label(),
                           .permits = first.what},
                          locks};
    require(
        !all.has_parts() || options.queueing == queueing::fair,
        "a part of a lock is not taken past its queue: acquire_all with queueing::barging takes "
        "whole locks alone");
    refuse_reentry(all);
    if (locks.size() == 1) {
        auto granted = acquire(first.name, until, stop, options, first.what);
        return granted ? grants{std::move(granted)} : grants{};
    }
    return all.call.measured(metrics::acquire_mode::several, [&] { return ask_until_over(all); });
}

acquirer::grants acquirer::ask_until_over(multi_acquisition& all) {
    while (!all.call.stop.stop_requested()) {
        try {
            if (auto found = ask(all)) return std::move(*found);
        } catch (const error& failure) {
            if (!outlasts(all.call, failure)) throw;
            if (!wait_to_ask_again(all.call, failure)) return {};
        }
    }
    return {};
}

/// A thread that waited for its own hold would wait forever, and keep others waiting.
void acquirer::refuse_reentry(const multi_acquisition& all) const {
    // One party has many threads: another of them may release what it holds.
    const auto ours = is_one_party() ? nullptr : sessions_.current();
    if (!ours) return;
    ours->grants().for_each_held([&](const grant& held) {
        if (!is_held_by_thread(held, all.call.thread)) return;
        if (std::ranges::find(all.locks, held.name, wanted_name) == all.locks.end()) return;
        refuse(held.name);
    });
}

/// The same for a thread that holds a mutex and waits for a mode, or the reverse: mutex and
/// shared_mutex know their own holds alone.
void acquirer::refuse_reentry(const acquisition& call) const {
    const auto ours = is_one_party() ? nullptr : sessions_.current();
    if (!ours || !(!shared_labels().empty() || ours->grants().holds_for(thread_label()))) return;
    ours->grants().for_each_held([&](const grant& held) {
        const bool of_mode = call.permits.of_shared_mutex();
        if (held.of_mode == of_mode || held.name != call.name.str()) return;
        if (held.grant_id == call.permits.upgrades) return;
        if (is_held_by_thread(held, thread_label())) refuse(held.name);
    });
}

bool acquirer::is_held_by_thread(const grant& held, const std::string& thread) {
    if (held.now != grant::state::held || held.unclaimed) return false;
    const auto& shared = shared_labels();
    return held.thread == thread || std::ranges::find(shared, held.thread) != shared.end();
}

/// One round.
std::optional<acquirer::grants> acquirer::ask(multi_acquisition& all) {
    auto& call = all.call;
    const auto made = retries_.on_connection(
        limits_of(call), call.stop,
        [&](sql::connection& db, sql::deadline until) { return attempt_all(all, db, until); });
    if (!made) return grants{};
    switch (made->what) {
        case outcome::granted:
            if (auto granted = accept_all(all, *made); !granted.empty()) return granted;
            require_timely(call);
            break;
        case outcome::session_dead:
            sessions_.lose(*call.ours, sessions_.why_over(*call.ours, connections_));
            break;
        case outcome::contested:
            // Not for long, unless a row is locked: by a transaction that a former holder fenced.
            if (call.contention.made() >= 4 && !call.sweeps.lasts(steady::now())) {
                return wait_for_holders(all, *made);
            }
            break;
        case outcome::held:
            return wait_for_holders(all, *made);
    }
    return go_on_for_all(call);
}

std::optional<acquirer::grants> acquirer::go_on_for_all(acquisition& call) {
    if (go_on(call)) return grants{};
    return std::nullopt;
}

protocol::multi_attempt acquirer::attempt_all(multi_acquisition& all, sql::connection& db,
                                              sql::deadline until) {
    auto& call = all.call;
    const auto ours = sessions_.ensure(db, until);
    if (all.unknown && call.ours == ours) {
        if (auto found = find_all(all, db, until)) return *found;
    }
    all.hand_over();
    call.use(ours);
    all.make_ids();
    auto made = take_all(all, false, db, until);
    // Faster clients win once or twice; then check the floor, as for one lease.
    if (made.what == outcome::contested && call.contention.made() >= 2) {
        context_.sessions.require_token_floor(db, until);
    }
    return made;
}

/// Takes all of them, or none. Ends the sessions of holders that have expired, each in its own
/// commit: only then may the rows of their leases change (I3).
protocol::multi_attempt acquirer::take_all(multi_acquisition& all, bool queued, sql::connection& db,
                                           sql::deadline until) {
    const request_parts parts{all, queued};
    protocol::multi_attempt made;
    try {
        // An earlier statement with these ids may have granted them: deadlines count from it.
        if (!all.unknown) {
            all.call.sent = context_.now();
            all.call.looks_before = all.call.ours->news().looks;
        }
        made = context_.several.take(db, parts.of(all), until);
    } catch (const error& failure) {
        if (failure.kind() == errc::outcome_unknown) {
            all.unknown = true;
        } else if (!queued) {
            all.forget_ids();
        }
        throw;
    } catch (...) {
        all.unknown = true;  // out of memory: the statement may have run
        throw;
    }
    if (made.what != outcome::granted && !queued) all.forget_ids();
    if (made.what != outcome::held) return made;
    for (const auto expired : made.expired) end_expired(db, expired, until);
    if (!made.expired.empty()) made.what = outcome::contested;
    take_back(all, db, made, until);
    return made;
}

/// If clients that have vanished had any, the next attempt may find room.
void acquirer::take_back(multi_acquisition& all, sql::connection& db,
                         protocol::multi_attempt& found, sql::deadline until) {
    if (found.full.empty()) return;
    auto& call = all.call;
    const auto seen = waiting_.take_back(db, found.full, until);
    bool any = false;
    bool all_fit = true;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        const auto which = std::ranges::find(all.locks, found.full[i], wanted_name);
        any = any || seen[i].any;
        all_fit = all_fit && (seen[i].any || may_fit(call, seen[i], which->what.weight()));
    }
    if (any) call.contention.forget();
    if (call.may_repeat() && (any || all_fit)) found.what = outcome::contested;
}

/// The grants of an attempt whose reply was lost, made durable; nullopt if it granted nothing so
/// far.
std::optional<protocol::multi_attempt> acquirer::find_all(multi_acquisition& all,
                                                          sql::connection& db,
                                                          sql::deadline until) {
    std::vector<protocol::hold_key> keys;
    for (std::size_t i = 0; i < all.ids.size(); ++i) keys.push_back(all.key(i));
    auto tokens = context_.holds.find_grants(db, keys, until);
    if (!tokens) return std::nullopt;
    protocol::multi_attempt found{.what = outcome::granted};
    found.tokens = *std::move(tokens);
    all.unknown = false;
    return found;
}

/// Returns the grants, or none if they came too late: then all are given back.
acquirer::grants acquirer::accept_all(multi_acquisition& all, const protocol::multi_attempt& made) {
    auto& call = all.call;
    std::optional<std::chrono::microseconds> max_duration;
    if (call.options.max_duration) max_duration = *call.options.max_duration;
    grants held;
    try {
        held.reserve(all.ids.size());
        for (std::size_t i = 0; i < all.ids.size(); ++i) {
            held.push_back(grants_.make(*call.ours, wanted_name(all.locks[i]), all.ids[i],
                                        made.tokens[i], call.sent, max_duration, call.thread,
                                        all.locks[i].what));
        }
    } catch (...) {
        all.unknown = true;  // out of memory: the grants cannot be held
        throw;
    }
    const auto find = [&](sql::connection& db, sql::deadline until) {
        return find_all(all, db, until).has_value();
    };
    if (was_ended(call, find)) {
        for (const auto& each : held) grants_.give_back(*each);
        return {};
    }
    if (grants_.hand_out(held)) {
        for (const auto& each : held) {
            context_.count(counter::acquired);
            context_.report(event_kind::lease_acquired, *each, {}, call.waited());
        }
        return held;
    }
    for (const auto& each : held) grants_.give_back(*each);
    if (!call.ours->trust()->open(context_.now())) {
        sessions_.lose(*call.ours, loss_reason::trust_window_passed);
        if (call.seen_held) {
            throw error{errc::lock_lost,
                        "the session ended while waiting: the grants came too late and were "
                        "released; ask again"};
        }
    }
    return {};
}

/// Continues after an attempt that found one of the locks held.
std::optional<acquirer::grants> acquirer::wait_for_holders(multi_acquisition& all,
                                                           const protocol::multi_attempt& seen) {
    auto& call = all.call;
    context_.count(counter::busy);
    call.contention.forget();
    call.seen_held = true;
    if (!call.has_time()) return grants{};
    if (call.barging()) {
        protocol::lease_probe first{};
        first.remaining = seen.remaining;
        if (!sleep_until_probe(call, first)) return grants{};
        return std::nullopt;
    }
    if (auto waited = wait_in_queues(all)) return waited;
    return go_on_for_all(call);
}

/// Enqueues in all queues and waits. Returns nullopt if an entry was lost (ask again), no grants if
/// the caller's time is up or a stop was requested.
std::optional<acquirer::grants> acquirer::wait_in_queues(multi_acquisition& all) {
    auto& call = all.call;
    const auto at = waiting_.threads();
    const auto mine = retries_.on_connection(
        limits_of(call), call.stop,
        [&](sql::connection& db, sql::deadline until) { return enqueue(all, *at, db, until); });
    if (!mine) return grants{};
    context_.count(counter::queued);
    call.had_entry = true;
    std::optional<protocol::multi_attempt> made;
    try {
        made = wait_for_turn(all, *at, *mine);
    } catch (...) {
        at->leave(**mine);
        all.unknown = false;  // the ids are the loop's to give up
        throw;
    }
    all.unknown = false;
    if (made) {
        if (auto granted = accept_all(all, *made); !granted.empty()) return granted;
        require_timely(call);
        return std::nullopt;
    }
    switch ((*mine)->now) {
        case waiter::state::failed:
            if ((*mine)->failure) throw error{*(*mine)->failure};
            throw error{errc::lock_lost, "the session or the client ended while waiting"};
        case waiter::state::vanished:
            return std::nullopt;
        default:  // the caller's time is up, or a stop was requested
            return grants{};
    }
}

/// Waits until the leases are taken, or the wait is over. After a turn that came to nothing, since
/// a row was locked or another client was faster, it tries again after a pause.
std::optional<protocol::multi_attempt> acquirer::wait_for_turn(
    multi_acquisition& all, waiting_threads& at, const std::shared_ptr<waiter>& mine) {
    constexpr nanoseconds longest_pause = std::chrono::milliseconds{100};
    auto& call = all.call;
    nanoseconds pause = std::chrono::milliseconds{1};
    while (at.wait_for_turn(mine, call.until, call.stop) && !at.is_over(*mine)) {
        if (!call.has_time()) continue;  // the wait ends
        auto made = take_turn(all, at, *mine);
        if (!made) continue;
        if (made->what == outcome::granted) return made;
        if (made->what != outcome::contested) continue;
        const nanoseconds left = std::max<nanoseconds>(
            std::min(call.until, steady::now() + longest_pause) - steady::now(), nanoseconds{0});
        // After a stop, or while the client is being closed, the wait ends.
        if (!retries_.pause(std::min(base::shortened(pause), left), call.stop)) continue;
        pause = std::min(2 * pause, longest_pause);
        at.call(*mine);
    }
    return std::nullopt;
}

/// Each attempt has its own ids. What became of one whose reply was lost the heartbeat finds out.
std::shared_ptr<waiter> acquirer::enqueue(multi_acquisition& all, waiting_threads& at,
                                          sql::connection& db, sql::deadline until) {
    auto& call = all.call;
    const auto ours = sessions_.ensure(db, until);
    all.hand_over();
    call.use(ours);
    all.make_ids();
    call.holds_others = !shared_labels().empty() || call.ours->grants().holds_for(thread_label());
    name_blocked(call);
    std::vector<waiter::place> others;
    std::shared_ptr<waiter> mine;
    try {
        for (std::size_t i = 1; i < all.ids.size(); ++i) {
            others.push_back({wanted_name(all.locks[i]), all.ids[i], all.locks[i].what});
        }
        mine = at.expect(call.name.str(), all.ids.front(), call.ours, call.thread,
                         call.options.max_duration, call.permits, call.blocks, std::move(others));
    } catch (...) {
        all.forget_ids();  // nothing was sent
        throw;
    }
    mine->holds_others =
        context_.options.deadlock_detection != deadlock_detection::off && call.holds_others;
    const request_parts parts{all, true};
    try {
        context_.several.enqueue(db, parts.of(all), until);
    } catch (const error& failure) {
        abandon(all, at, *mine, failure.kind() == errc::outcome_unknown);
        throw;
    } catch (...) {
        abandon(all, at, *mine, true);  // out of memory: the tickets may have been sent
        throw;
    }
    at.enqueued(*mine);
    return mine;
}

void acquirer::abandon(const multi_acquisition& all, waiting_threads& at, waiter& mine,
                       bool sent) noexcept {
    static_cast<void>(at.withdraw(mine));
    if (!sent) return all.forget_ids();
    give_back(grants_, mine);
}

/// It may be our turn in all queues: takes them. Returns nullopt if the wait is over, or the
/// caller's time is up: the entries stay, or are dealt with.
///
/// The ids stay those of the entries, whose deletion the statement rests on: however often it is
/// sent, it takes effect once.
std::optional<protocol::multi_attempt> acquirer::take_turn(multi_acquisition& all,
                                                           waiting_threads& at, waiter& mine) {
    struct taking {
        waiting_threads& at;
        waiter& mine;
        ~taking() { at.end_taking(mine); }
    };
    auto& call = all.call;
    at.begin_taking(mine);
    const taking until_then{at, mine};
    const auto attempt = [&](sql::connection& db, sql::deadline until) {
        if (all.unknown) {
            if (auto found = find_all(all, db, until)) return std::move(*found);
        }
        // Whatever this one comes to, an earlier one whose reply was lost may still commit: until
        // the leases are ours, each further turn looks for it first.
        auto taken = take_all(all, true, db, until);
        if (all.unknown && taken.what != outcome::granted) {
            if (auto found = find_all(all, db, until)) return std::move(*found);
        }
        if (taken.what == outcome::contested && ++all.contested_turns > 2) {
            context_.sessions.require_token_floor(db, until);
        }
        return taken;
    };
    auto made = retries_.on_connection(limits_of(call), call.stop, attempt);
    if (!made) return std::nullopt;
    if (made->what == outcome::session_dead) {
        sessions_.lose(*call.ours, sessions_.why_over(*call.ours, connections_));
    }
    if (made->what != outcome::granted) return made;
    const bool ours = at.taken(mine);
    mine.for_each_entry([&](const protocol::hold_key& entry) {
        // Those after our entries may fit beside a part. Otherwise the session was lost, or the
        // client closed, in between.
        if (!ours) {
            grants_.give_back(*mine.ours, entry);
        } else if (entry.part) {
            waiting_.freed(std::string{entry.name});
        }
    });
    if (ours) return made;
    return std::nullopt;
}

}  // namespace rowlock::detail
