#include "lock/session/grant_lifecycle.hpp"

#include <algorithm>
#include <utility>

namespace rowlock::detail {

loss_reason why_deadline_passed(const grant& over) noexcept {
    return over.requested ? loss_reason::release_requested : loss_reason::deadline_passed;
}

std::shared_ptr<grant> grant_lifecycle::make(session& ours, std::string name, grant_id grant_id,
                                             std::int64_t token, nanoseconds sent,
                                             std::optional<std::chrono::microseconds> max_duration,
                                             std::string thread,
                                             const protocol::wanted_permits& permits,
                                             std::optional<std::chrono::microseconds> whole) {
    auto made = std::make_shared<grant>();
    made->name = std::move(name);
    made->thread = std::move(thread);
    made->permits = permits.count;
    made->of_mode = permits.of_shared_mutex();
    made->mode = protocol::mode_for(permits.count).value_or(lock_mode::exclusive);
    made->token = fencing_token{token};
    made->row_token = token;
    made->grant_id = grant_id;
    made->session_id = ours.id();
    made->session_trust = ours.trust();
    made->made_at = context_.now();
    made->unclaimed = true;
    made->measured = &context_.measured.of(made->name);
    made->owner = context_.owner;
    made->clock = context_.clock;
    if (max_duration) {
        // The database counts from the grant, which is later than our sending: this deadline is
        // early. A short duration cannot afford the whole margin.
        const nanoseconds margin =
            std::min<nanoseconds>(context_.options.margin, whole.value_or(*max_duration) / 6);
        made->deadline = sent + *max_duration - margin;
        made->deadline_margin = margin;
        made->deadline_over = context_.now() + *max_duration;
    }
    ours.grants().hold(made);
    if (!max_duration) return made;
    try {
        deadlines_.add(made);
    } catch (...) {
        ours.grants().forget(grant_id);  // a grant that is not fully registered is not held
        throw;
    }
    hooks_.on_deadline();
    return made;
}

/// A thread that loses a grant writes its state before it reads the flag: it sees that a caller has
/// the grant, or this sees that it is lost.
bool grant_lifecycle::hand_out(std::span<const std::shared_ptr<grant>> granted) noexcept {
    const auto is_held = [](const auto& each) { return each->held(); };
    if (!std::ranges::all_of(granted, is_held)) return false;
    for (const auto& each : granted) each->unclaimed = false;
    if (std::ranges::all_of(granted, is_held)) return true;
    for (const auto& each : granted) each->unclaimed = true;
    return false;
}

void grant_lifecycle::forget(const grant& ended) noexcept {
    if (const auto ours = sessions_.current(ended.session_id))
        ours->grants().forget(ended.grant_id);
    deadlines_.remove(ended);
}

/// Sets the flag before it reads the state; a thread that declares a loss writes the state before
/// it reads the flag: one of the two sees the other.
void grant_lifecycle::stopped(grant& by) noexcept {
    if (by.stopped.exchange(true) || by.now != grant::state::lost) return;
    const loss_reason why = by.reason;
    const bool row_alone =
        why == loss_reason::deadline_passed || why == loss_reason::release_requested;
    if (sessions_.current(by.session_id) && row_alone) return clear_row(by);
    hooks_.on_work();
}

void grant_lifecycle::declare_if_over(grant& held) noexcept {
    if (held.held() || held.now != grant::state::held) return;
    const bool session_lives = held.session_trust->open(context_.now());
    context_.lose(held,
                  session_lives ? why_deadline_passed(held) : loss_reason::trust_window_passed);
}

void grant_lifecycle::end_by(const std::shared_ptr<grant>& held, const release_request& request,
                             nanoseconds sent, nanoseconds left, bool shortens) {
    const nanoseconds margin = context_.options.margin;
    if (held->now == grant::state::held) context_.pass_on(*held, request);
    deadlines_.cap(held, sent + left - margin, margin, context_.now() + left, shortens);
    hooks_.on_deadline();
}

void grant_lifecycle::keep_deadline(const std::shared_ptr<grant>& held, nanoseconds sent,
                                    nanoseconds left) {
    const nanoseconds margin = held->deadline_margin;
    deadlines_.cap(held, sent + left - margin, margin, context_.now() + left, false);
}

bool grant_lifecycle::deny(grant& believed, grant::state from) noexcept {
    if (!context_.lose(believed, loss_reason::forced_release, from)) return false;
    if (const auto ours = sessions_.current(believed.session_id)) leave_denied(*ours, believed);
    return true;
}

bool grant_lifecycle::taken_over(grant& offered) noexcept {
    if (!context_.taken_over(offered)) return false;
    deadlines_.remove(offered);
    // As of a denied grant; its holder has stopped.
    if (const auto ours = sessions_.current(offered.session_id)) leave_denied(*ours, offered);
    return true;
}

/// Adds a grant that the table denies to the unresolved ones. If a crash lost the hand-over, the
/// queue entry it came from is back and would be served without a waiter: either the lease or the
/// entry exists, and one attempt finds it. If the read came from a node that lags behind, or the
/// row's token was changed by hand, the row is ours after all; it is not given back until its
/// holder has stopped or the margin is over.
void grant_lifecycle::leave_denied(session& ours, const grant& lost) noexcept {
    const nanoseconds now = context_.now();
    leave_unresolved(ours, lost.key(),
                     {.not_after = now,
                      .surely_ended = true,
                      .queued = lost.queued,
                      .not_before = now + context_.options.margin});
}

void grant_lifecycle::clear_row(grant& passed) noexcept {
    if (passed.row_given_up.exchange(true)) return;
    const auto ours = sessions_.current(passed.session_id);
    if (!ours) return;
    leave_unresolved(*ours, passed.key(), {.not_after = context_.now(), .surely_ended = true});
}

void grant_lifecycle::give_back(grant& unwanted) noexcept {
    unwanted.stopped = true;
    auto expected = grant::state::held;
    unwanted.now.compare_exchange_strong(expected, grant::state::released);
    const auto ours = sessions_.current(unwanted.session_id);
    // The end of a lost session may wait only for this holder.
    if (!ours) return hooks_.on_work();
    leave_unresolved(*ours, unwanted.key(), {.not_after = context_.now(), .surely_ended = true});
}

void grant_lifecycle::give_back(session& ours, const protocol::hold_key& entry) noexcept {
    leave_unresolved(ours, entry,
                     {.not_after = context_.now() + context_.statement_bound(), .queued = true});
}

bool grant_lifecycle::leave_unanswered(const grant& released) noexcept {
    const auto ours = sessions_.current(released.session_id);
    if (!ours) return false;
    leave_unresolved(*ours, released.key(),
                     {.not_after = context_.now() + context_.statement_bound()});
    return true;
}

void grant_lifecycle::leave_unresolved(session& ours, const protocol::hold_key& which,
                                       unresolved_grant what) noexcept {
    const auto grant_id = which.grant_id;
    try {
        what.name = which.name;
        what.grant_id = grant_id;
        what.part = which.part;
        ours.grants().remember(std::move(what));
    } catch (...) {
        ours.grants().forget(grant_id);
        ours.grants().doubt();
        hooks_.on_doubt();
    }
    hooks_.on_work();
}

}  // namespace rowlock::detail
