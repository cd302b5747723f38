// Waiting in a queue, for a call that acquires a lease.

#include "lock/client/acquirer.hpp"
#include "lock/client/shared_labels.hpp"
#include "lock/protocol/queue/party_labels.hpp"
#include "lock/queue/waiting_threads.hpp"
#include <rowlock/error.hpp>

#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace rowlock::detail {
namespace {

/// An enqueue whose commit takes longer may have missed the check that follows a release.
constexpr auto late = std::chrono::milliseconds{10};

}  // namespace

/// Enqueues and waits. Returns nullopt if the queue entry was lost (ask again), null if the
/// caller's time is up or a stop was requested.
acquirer::answer acquirer::wait_in_queue(acquisition& call) {
    refuse_reentry(call);
    // A lost attempt that is still in flight must not block our ticket: the heartbeat gives it
    // back.
    call.hand_over();
    const auto at = waiting_.threads();
    const auto mine = retries_.on_connection(
        limits_of(call), call.stop,
        [&](sql::connection& db, sql::deadline until) { return enqueue(call, *at, db, until); });
    if (!mine) return std::shared_ptr<grant>{};
    context_.count(counter::queued);
    call.seen_held = true;
    call.had_entry = true;
    try {
        if (!at->wait(*mine, call.until, call.stop)) return std::shared_ptr<grant>{};
    } catch (...) {
        at->leave(**mine);
        throw;
    }
    switch ((*mine)->now) {
        case waiter::state::served:
            if (auto granted = accept_served(call, **mine)) return granted;
            require_timely(call);
            return std::nullopt;
        case waiter::state::failed:
            if ((*mine)->failure) throw error{*(*mine)->failure};
            throw error{errc::lock_lost, "the session or the client ended while waiting"};
        case waiter::state::cancelled:
            return std::shared_ptr<grant>{};
        default:  // gone; a grant with its own deadline may have come and expired meanwhile
            require_timely(call);
            return std::nullopt;
    }
}

/// Each attempt has its own id. One whose reply was lost may have been served by the time that is
/// known; otherwise the heartbeat gives it up.
std::shared_ptr<waiter> acquirer::enqueue(acquisition& call, waiting_threads& at,
                                          sql::connection& db, sql::deadline until) {
    call.use(sessions_.ensure(db, until));
    auto mine = expect_waiter(call, at);
    const auto abandon = [&](bool sent) {
        if (!at.withdraw(*mine)) return false;
        if (sent) {
            grants_.give_back(*call.ours, mine->key());
        } else {
            call.ours->grants().forget(mine->grant_id);
        }
        return true;
    };
    std::optional<protocol::lease_glance> seen;
    const auto sent = steady::now();
    try {
        seen = context_.queues.enqueue(db, call.request(), until);
    } catch (const error& failure) {
        if (abandon(failure.kind() == errc::outcome_unknown)) throw;
    } catch (...) {
        if (abandon(true)) throw;  // out of memory: the ticket may have been sent
    }
    at.enqueued(*mine);
    look_once(call, at, seen, db, until);
    // The statement looked at the lease before its commit made the entry visible.
    const auto took = steady::now() - sent - context_.link.round_trip();
    if (seen && call.contended && took > late) at.poll_soon();
    return mine;
}

/// A call that went straight to the queue expects a holder whose release serves it. If the lease is
/// free no release follows.
void acquirer::look_once(acquisition& call, waiting_threads& at,
                         std::optional<protocol::lease_glance> seen, sql::connection& db,
                         sql::deadline until) {
    if (!call.contended) return;
    protocol::lease_glance now;
    try {
        now = seen ? *seen : context_.leases.glance(db, call.name.str(), until);
    } catch (...) {
        return at.poll_soon();
    }
    if (now.free) {
        waiting_.contended().forget(call.name.str());  // there is no queue any more
        at.serve_now(call.name.str());
    } else {
        at.holder_expires_in(now.remaining);
    }
}

/// The waiter of a ticket that is about to be sent.
std::shared_ptr<waiter> acquirer::expect_waiter(acquisition& call, waiting_threads& at) {
    call.grant_id = grant_id{context_.next_id()};
    call.ours->expect(call.key(call.grant_id));
    call.holds_others = call.permits.is_upgrade() || !shared_labels().empty() ||
                        call.ours->grants().holds_for(thread_label());
    name_blocked(call);
    std::shared_ptr<waiter> mine;
    try {
        mine = at.expect(call.name.str(), call.grant_id, call.ours, call.thread,
                         call.options.max_duration, call.permits, call.blocks);
    } catch (...) {
        call.ours->grants().forget(call.grant_id);  // nothing was sent
        throw;
    }
    mine->contended = call.contended;
    mine->holds_others =
        context_.options.deadlock_detection != deadlock_detection::off && call.holds_others;
    return mine;
}

/// Returns the grant, or null if it came too late: after a pause the session may have expired, and
/// no caller may receive a lease that is not held. The lease goes on to the next waiter.
std::shared_ptr<grant> acquirer::accept_served(const acquisition& call, const waiter& served) {
    const auto& granted = served.granted;
    granted->withheld = call.withheld;
    if (grants_.hand_out({&granted, 1})) {
        report_acquired(call, *granted, true);
        return granted;
    }
    grants_.give_back(*granted);
    if (!served.ours->trust()->open(context_.now())) {
        sessions_.lose(*served.ours, loss_reason::trust_window_passed);
        throw error{errc::lock_lost,
                    "the session ended while waiting: the grant came too late and was released; "
                    "ask again"};
    }
    return nullptr;
}

/// What is not released before this entry has been served, besides what its label tells: the holds
/// of its thread, and those that its thread shares with others.
void acquirer::name_blocked(acquisition& call) const {
    call.blocks.clear();
    if (context_.options.deadlock_detection != deadlock_detection::by_thread) return;
    const auto add = [&](std::string_view label) {
        if (label == call.thread) return;
        if (!call.blocks.empty()) call.blocks.push_back(protocol::label_separator);
        call.blocks.append(label);
    };
    add(thread_label());
    for (const auto& each : shared_labels()) add(each);
}

/// Identifies the acquirer for deadlock detection.
std::string acquirer::thread_label() const {
    if (is_one_party()) return "client";
    thread_local const std::string label = std::to_string(gettid());
    return label;
}

}  // namespace rowlock::detail
