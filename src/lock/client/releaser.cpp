#include "lock/client/releaser.hpp"

#include "base/require.hpp"
#include "lock/client/validation.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;

/// Some of what a hold has, or that it had besides, is free.
const protocol::release_outcome part_freed{.freed = true, .next = {}, .part = true};

}  // namespace

void releaser::release(grant& held) {
    if (const auto how = begin(held)) finish(held, *how);
}

/// Returns nullopt if there is nothing to release.
std::optional<releaser::begun> releaser::begin(grant& held) {
    context_.fork.require_same_process();
    grants_.declare_if_over(held);
    grants_.stopped(held);
    // A transaction of the caller's may have freed it, or another client may have adopted it; if
    // not, this call frees it.
    auto seen = grant::state::held;
    const auto leaves = [&](grant::state from) {
        seen = from;
        return held.now.compare_exchange_strong(seen, grant::state::releasing);
    };
    const bool perhaps_freed = leaves(grant::state::released_in) || leaves(grant::state::offered);
    if (!perhaps_freed && !leaves(grant::state::held)) {
        if (seen == grant::state::lost) throw lost_error(held);
        return std::nullopt;
    }
    return begun{.perhaps_freed = perhaps_freed};
}

void releaser::offer(grant& held) {
    require(held.is_whole(), "a part of a lock cannot be offered: only a whole lock");
    if (held.now == grant::state::offered) {
        const auto now = context_.now();
        if (held.session_trust->open(now) && held.in_time(now)) return;
        context_.lose_with_offers(held, held.session_trust->open(now)
                                            ? why_deadline_passed(held)
                                            : loss_reason::trust_window_passed);
    }
    require_held(held);
    // From here on every hand-over of this lease is durable: see hand_over_to().
    held.offered = true;
    auto expected = grant::state::held;
    if (held.now.compare_exchange_strong(expected, grant::state::offered)) {
        held.stopped = true;  // a loss from here on leaves no holder to wait for
        return;
    }
    require_held(held);  // throws: it was lost or released meanwhile
}

/// The answer to the hand-over may have been lost: then the table says whether it was done.
bool releaser::hand_over_to(grant& held, protocol::next_waiter heir) {
    const auto how = begin(held);
    if (!how) return false;
    heir.token = std::max(heir.token, held.row_token + 1);  // a node may lag behind
    heir.seen = held.row_token;                             // no other grant is handed over
    heir.looks_from =
        ticket_no{std::numeric_limits<std::int64_t>::max()};  // the queue's watermark stays
    const auto done = finish(held, *how, &heir);
    if (done.next || !done.unknown) return done.next && done.next->grant_id == heir.grant_id;
    return retries_.change([&](sql::connection& db, sql::deadline until, auto& change) {
        change.may_be_made();
        return context_.queues.read_served(db, held.name, heir.session, heir.grant_id, until)
            .has_value();
    });
}

releaser::ending releaser::finish(grant& held, begun how, const protocol::next_waiter* heir) {
    try {
        auto done = send(held, how.unknown, heir);
        // Not found after a lost reply: the earlier attempt freed it.
        if (done.freed || how.unknown || how.perhaps_freed) {
            released(held);
            return {.unknown = how.unknown, .next = std::move(done.next)};
        }
    } catch (const std::exception& failure) {
        leave_to_heartbeat(held, failure.what());
        throw;
    }
    deny(held);
    throw lost_error(held);
}

void releaser::release_several(std::span<const std::shared_ptr<grant>> all) {
    std::optional<error> failed;
    std::optional<std::string> hopeless;  ///< why the others need not be tried
    const auto without_throwing = [&](const auto& act) {
        try {
            act();
        } catch (const error& failure) {
            if (!failed) failed = failure;
            if (failure.kind() == errc::database_unreachable) hopeless = failure.what();
        } catch (const std::exception& failure) {
            if (!failed) failed.emplace(errc::out_of_resources, failure.what());
        }
    };
    struct release {
        std::shared_ptr<grant> held;
        begun how;
    };
    std::vector<std::shared_ptr<grant>> together;
    std::vector<release> alone;
    together.reserve(all.size());
    alone.reserve(all.size());
    for (const auto& each : all) {
        without_throwing([&] {
            const auto how = begin(*each);
            if (!how) return;
            const bool expects_waiter =
                each->queued || each->fenced || waiting_.contended().has(each->name);
            if (how->perhaps_freed || expects_waiter || each->is_part()) {
                alone.push_back({each, *how});
            } else {
                together.push_back(each);
            }
        });
    }
    bool unknown = false;
    const auto freed = release_unwaited(together, unknown);
    for (std::size_t i = 0; i < together.size(); ++i) {
        if (i >= freed.size() || !freed[i]) {
            alone.push_back({together[i], {.unknown = unknown}});
            continue;
        }
        without_throwing([&] {
            released(*together[i]);
            if (!context_.traits().one_writer) waiting_.freed_unwaited(together[i]->name);
            tokens_.remember_free(together[i]->name, together[i]->row_token);
        });
    }
    for (const auto& each : alone) {
        without_throwing([&] {
            // As each would be after its own attempts.
            if (hopeless) return leave_to_heartbeat(*each.held, hopeless->c_str());
            finish(*each.held, each.how);
        });
    }
    if (failed) throw error{*failed};
}

/// Returns which of them it freed: those that had no waiter and were no row that another client has
/// locked. After a failure the others are released one by one.
std::vector<bool> releaser::release_unwaited(const std::vector<std::shared_ptr<grant>>& all,
                                             bool& unknown) noexcept {
    if (all.size() < 2) return {};
    try {
        std::vector<protocol::granted_name> grants;
        for (const auto& each : all) grants.push_back({each->name, each->grant_id});
        return batches_.release_all(all.front()->session_id, grants, context_.statement_deadline());
    } catch (const error& failure) {
        unknown = failure.kind() == errc::outcome_unknown;
        if (unknown) context_.count(counter::unknown_outcomes);
    } catch (...) {
        unknown = true;  // out of memory: it may have run
    }
    return {};
}

void releaser::release_several_quietly(std::span<const std::shared_ptr<grant>> all) noexcept {
    try {
        release_several(all);
    } catch (...) {
        // Reported as events; the releases go on in the background.
    }
}

void releaser::require_held(grant& held) {
    context_.fork.require_same_process();
    grants_.declare_if_over(held);
    const auto now = held.now.load();
    if (now == grant::state::lost) throw lost_error(held);
    if (now != grant::state::held) throw error{errc::not_owner, "it was released"};
}

void releaser::refuse(grant& held) {
    static_cast<void>(grants_.deny(held));
    throw lost_error(held);
}

/// The hold first: a heartbeat that has read the upgrade asks the ledger, then the hold.
void releaser::take_in(grant& hold, grant& upgrade) noexcept {
    raise(hold.upgrade_token, upgrade.token.value());
    hold.upgrade = upgrade.grant_id;
    hold.mode = lock_mode::exclusive;
    grants_.forget(upgrade);
    upgrade.now = grant::state::released;
}

/// It is not believed from before the statement is sent. Until its end is confirmed the ledger
/// knows its id; if it cannot be, the heartbeat ends it.
void releaser::end_upgrade(grant& hold, std::optional<std::int64_t> more) {
    require_held(hold);
    const auto ours = sessions_.current(hold.session_id);
    if (!ours) throw lost_error(hold);
    const auto upgrade = hold.upgrade.load();
    ours->grants().expect(upgrade);
    hold.upgrade = grant_id{};
    const auto token = hold.upgrade_token + 1;
    if (more) raise(hold.next_row_token, token);
    bool ended = false;
    try {
        ended = send_end_of_upgrade(hold, upgrade, more);
    } catch (...) {
        hold.ending = upgrade;
        if (more) hold.permits = *more;
        auto which = hold.key();
        which.grant_id = upgrade;
        grants_.leave_unresolved(
            *ours, which,
            {.not_after = context_.now() + context_.statement_bound(), .believed_upgrade = true});
        waiting_.perhaps_freed(hold.name);
        throw;
    }
    ours->grants().forget(upgrade);
    if (more) hold.permits = *more;
    if (ended) return;
    static_cast<void>(grants_.deny(hold));
    throw lost_error(hold);
}

/// Returns whether it has ended the upgrade, or may have by an attempt whose reply was lost. If so,
/// it has served the waiters.
bool releaser::send_end_of_upgrade(grant& hold, grant_id upgrade,
                                   std::optional<std::int64_t> more) {
    return *retries_.change(context_.statement_deadline(), {},
                            [&](sql::connection& db, sql::deadline until, auto& change) {
                                const bool done = change([&] {
                                    return context_.semaphores.end_upgrade(db, hold.name, upgrade,
                                                                           more, until);
                                });
                                const bool over = done || change.possible();
                                if (over) waiting_.after_release(db, hold.name, part_freed, until);
                                return over;
                            });
}

/// A change of our rows that the heartbeat has not read yet may be a request for this release: then
/// it comes first.
void releaser::extend(grant& held, milliseconds by) {
    constexpr auto asked_for =
        "another client has asked for the release of this hold by its deadline: it cannot be "
        "extended";
    const auto give_up = context_.statement_deadline();
    for (;;) {
        require_held(held);
        require(!held.requested, asked_for);
        require(held.deadline.load() != base::alarm::never,
                "only a hold with a max_duration can be extended");
        const auto ours = sessions_.current(held.session_id);
        if (!ours) throw lost_error(held);
        nanoseconds sent{0};
        const auto done = *retries_.change(
            give_up, {}, [&](sql::connection& db, sql::deadline until, auto& change) {
                sent = context_.now();
                return change(
                    [&] { return send_extension(db, held, by, ours->news().revision, until); });
            });
        // For so long from then, or for another time: once more, from now.
        if (done == protocol::extension::done_before) continue;
        require(done != protocol::extension::requested, asked_for);
        if (done == protocol::extension::done) {
            // The database counts from a later time: this deadline is early.
            const auto now = context_.now();
            if (grants_.deadlines().extend(held, sent + by - held.deadline_margin.load(), now + by,
                                           now)) {
                return;
            }
            grants_.declare_if_over(held);
            // The watchdog frees its row when the margin is over.
            if (held.stopped) grants_.clear_row(held);
            throw lost_error(held);
        }
        if (done == protocol::extension::over) refuse(held);
        keeper_.reconcile_now();
        if (steady::now() >= give_up || !retries_.pause(10ms, {})) {
            throw error{errc::timed_out,
                        "the hold was not extended: another client has changed holds of this "
                        "session, and the heartbeat has not read yet which"};
        }
    }
}

protocol::extension releaser::send_extension(sql::connection& db, grant& held, milliseconds by,
                                             std::int64_t revision, sql::deadline until) {
    const std::int64_t token = held.row_token;
    raise(held.next_row_token, token + 2);  // a heartbeat may read it before we hear of it
    const auto done = context_.holds.extend(
        db, {.which = held.key(), .token = token, .new_token = token + 2}, by, revision, until);
    raise(held.row_token, done.token);
    return done.what;
}

void releaser::finish_ending(grant& hold) {
    const auto upgrade = hold.ending.load();
    if (upgrade == grant_id{}) return;
    static_cast<void>(send_end_of_upgrade(hold, upgrade, std::nullopt));
    hold.ending = grant_id{};
}

void releaser::shrink(grant& held, std::int64_t to) {
    require_held(held);
    if (!held.is_part()) {
        // The heartbeat reads the holds of a session that has any.
        if (const auto ours = sessions_.current(held.session_id)) ours->expect_parts();
        held.perhaps_lowered = true;
    }
    const auto kept = waiting_.look_if_unknown(held.name, [&] {
        return retries_.change(context_.statement_deadline(), {},
                               [&](sql::connection& db, sql::deadline until, auto& change) {
                                   const auto lower = [&] {
                                       return context_.holds.lower(db, held.key(), to, until);
                                   };
                                   if (!change(lower)) return false;
                                   held.permits = to;
                                   waiting_.after_release(db, held.name, part_freed, until);
                                   return true;
                               });
    });
    if (kept && *kept) return;
    static_cast<void>(grants_.deny(held));
    throw lost_error(held);
}

void releaser::release_quietly(grant& held) noexcept {
    if (held.now == grant::state::released) return;
    try {
        release(held);
    } catch (...) {
        // release() has reported it as an event and goes on in the background.
    }
}

void releaser::released(grant& held) {
    grants_.forget(held);
    held.now = grant::state::released;
    if (held.unclaimed) return;
    context_.count(counter::released);
    context_.measure_end(held);
    context_.report(event_kind::lease_released, held);
}

/// The release found that the lease was no longer ours.
void releaser::deny(grant& held) {
    grants_.forget(held);
    grants_.deny(held, grant::state::releasing);
}

/// The lease counts as released; the heartbeat keeps trying to free its row.
void releaser::leave_to_heartbeat(grant& held, const char* why) noexcept {
    held.now = grant::state::released;
    context_.measure_end(held);
    if (!grants_.leave_unanswered(held)) return;  // an ended session holds nothing
    if (!held.unclaimed) context_.report(event_kind::outcome_unknown, held, why);
}

/// What this call did to the lease. If it freed it a waiter has it, or will be looked for.
protocol::release_outcome releaser::send(grant& held, bool& unknown,
                                         const protocol::next_waiter* heir) {
    const bool contended = held.queued || heir != nullptr || waiting_.contended().has(held.name);
    // A release that waits for a fenced transaction must not delay other threads.
    bool together = heir == nullptr && !held.fenced && !held.perhaps_lowered;
    const auto attempt = [&](sql::deadline until) {
        try {
            if (std::exchange(together, false)) {
                if (const auto shared = send_together(held, contended, until, unknown)) {
                    return *shared;
                }
            }
            return send_alone(held, contended, heir, until);
        } catch (const error& failure) {
            unknown = unknown || failure.kind() == errc::outcome_unknown;
            throw;
        }
    };
    // The last part of the time is for a driver that cancels an unanswered statement.
    const auto cancelling = std::min<milliseconds>(250ms, context_.options.statement_timeout / 4);
    auto done = retries_.repeat(context_.statement_deadline() - cancelling, {}, attempt);
    if (done && done->freed && !done->part && !done->next) {
        tokens_.remember_free(held.name, held.row_token);
    }
    if (unknown) waiting_.perhaps_freed(held.name);
    return done ? *std::move(done) : protocol::release_outcome{};
}

/// @param heir the waiter that is to get the lease, whatever its place; null: the first
protocol::release_outcome releaser::send_alone(grant& held, bool contended,
                                               const protocol::next_waiter* heir,
                                               sql::deadline until) {
    const auto db = connections_.take(until);
    protocol::release_outcome released{true, heir != nullptr ? hand_over_to(*db, held, *heir, until)
                                                             : hand_over_to_next(*db, held, until)};
    if (!released.next) {
        released = context_.holds.release(*db, held.key(),
                                          {.contended = contended, .permits = held.permits}, until);
    }
    if (released.freed) waiting_.after_release(*db, held.name, released, until);
    return released;
}

/// Sends a release without a known waiter together with those of other threads. Returns nullopt if
/// only an unbatched release can tell, without a pause: the failure may be that of another release.
std::optional<protocol::release_outcome> releaser::send_together(const grant& held, bool contended,
                                                                 sql::deadline until,
                                                                 bool& unknown) {
    try {
        auto done =
            batches_.release(held.key(), {.contended = contended, .permits = held.permits}, until);
        if (done && done->freed && !done->part && !done->next && !done->unwaited &&
            !done->counted_waits) {
            waiting_.freed_unwaited(held.name);
        }
        return done;
    } catch (const error& failure) {
        if (failure.kind() == errc::outcome_unknown) {
            unknown = true;
            context_.count(counter::unknown_outcomes);
        } else if (!failure.retryable()) {
            throw;
        }
        return std::nullopt;
    }
}

/// Hands the lease to the waiter seen behind it, if any; once. After a lost reply the release finds
/// out.
std::optional<protocol::handed_over> releaser::hand_over_to_next(sql::connection& db, grant& held,
                                                                 sql::deadline until) {
    std::optional<protocol::next_waiter> next;
    {
        const std::lock_guard lock{held.mutex};
        next.swap(held.next);
        if (!next || context_.now() >= held.next_until) return std::nullopt;
    }
    return hand_over_to(db, held, *next, until);
}

std::optional<protocol::handed_over> releaser::hand_over_to(sql::connection& db, const grant& held,
                                                            const protocol::next_waiter& next,
                                                            sql::deadline until) {
    // Another client may take the lease over by what a server crash leaves of its row: a waiter
    // that was notified of this hand-over must not be forgotten.
    const bool may_be_taken_over =
        held.offered || !context_.options.owner.starts_with(random_owner);
    // A waiter on this machine is notified without the database.
    const bool near =
        context_.options.wake_ups == wakeup_mode::automatic && protocol::is_near(next.to);
    return context_.queues.hand_over_to(
        db, held.name, held.session_id, held.grant_id, next,
        {.may_be_asynchronous = !may_be_taken_over, .notify = !near}, until);
}

}  // namespace rowlock::detail
