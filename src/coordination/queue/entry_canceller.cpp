#include "coordination/queue/entry_canceller.hpp"

#include <algorithm>

namespace rowlock::detail {

void entry_canceller::cancel_given_up() {
    auto given_up = parts_.registry.take_given_up();
    if (given_up.empty()) return;
    try {
        std::vector<grant_id> ids;
        for (const auto& each : given_up) ids.push_back(each->grant_id);
        const auto deleted = parts_.queues().cancel(*link_, ids, link_.write_deadline());
        link_.wrote();
        while (!given_up.empty()) {
            const auto& last = given_up.back();
            answer(last, std::ranges::find(deleted, last->grant_id) != deleted.end());
            given_up.pop_back();
        }
    } catch (...) {
        link_.wrote_too_slowly();
        parts_.registry.retry_given_up();
        throw;
    }
}

/// An entry that is gone was served, unless another client deleted it. If its thread has left, the
/// lease goes on to the next waiter at once, and other clients find it held no longer than the
/// round trips of this client make it.
void entry_canceller::answer(const std::shared_ptr<waiter>& which, bool deleted) {
    auto& registry = parts_.registry;
    // Served meanwhile by another thread: its own thread has the grant, or it is unwanted.
    if (registry.is_over(*which)) return;
    if (!deleted && registry.has_left(*which)) {
        deleted = hand_over(which->name, which->ours->id(), which->grant_id);
    } else if (!deleted) {
        const nanoseconds sent = parts_.context.now();
        const auto granted = parts_.queues().served(*link_, which->name, which->ours->id(),
                                                    which->grant_id, link_.soon());
        if (granted) return registry.serve(*which, {granted->token, sent, granted->deadline_us});
    }
    const bool ended = registry.end(*which, waiter::state::cancelled, [&] {
        if (deleted) {
            which->ours->grants().forget(which->grant_id);
        } else {
            parts_.grants.give_back(*which->ours, which->name, which->grant_id);
        }
    });
    if (!ended) {
        // Served by another thread meanwhile. If the grant was given back above, nothing is left to
        // do.
        if (deleted && registry.erase_unwanted(*which)) {
            which->granted->now = grant::state::released;
            parts_.grants.forget(*which->granted);
        }
        return;
    }
    parts_.context.count(counter::cancelled);
    // A grant_next may have chosen the entry and found it gone.
    parts_.tasks.check_now(which->name, parts_.now());
}

/// Hands a grant that served a thread that had left to the next waiter. Returns false if there is
/// no such grant, or its row is locked.
bool entry_canceller::hand_over(const std::string& name, session_id session, grant_id grant_id) {
    try {
        const auto done =
            parts_.queues().release(*link_, name, session, grant_id, true, link_.write_deadline());
        link_.wrote();
        if (done.freed) parts_.owner.after_release(*link_, name, done, link_.soon());
        return done.freed;
    } catch (const error& failure) {
        if (!sql::is_locked(*link_, failure)) throw;
        link_.wrote_too_slowly();
        return false;
    }
}

void entry_canceller::give_back_unwanted() {
    auto all = parts_.registry.take_unwanted();
    while (!all.empty()) {
        const auto granted = all.back();
        all.pop_back();
        // The grant stays known here until it is freed, or the heartbeat has it on its list: a
        // comparison with the database in between finds nothing to give back.
        try {
            if (hand_over(granted->name, granted->session_id, granted->grant_id)) {
                granted->now = grant::state::released;
                parts_.grants.forget(*granted);
                continue;
            }
        } catch (...) {
            parts_.grants.give_back(*granted);
            for (const auto& rest : all) parts_.grants.give_back(*rest);
            throw;
        }
        parts_.grants.give_back(*granted);
    }
}

void entry_canceller::delete_entries_of_ended_sessions(const std::function<void()>& between,
                                                       const std::atomic<bool>& stopping) {
    while (!stopping) {
        const auto ended = parts_.tasks.next_session_with_entries();
        if (!ended) return;
        bool more = false;
        try {
            more = parts_.queues().delete_entries_of(*link_, *ended, link_.write_deadline());
            link_.wrote();
        } catch (const error&) {
            link_.wrote_too_slowly();
            if (!link_.get()->alive()) throw;
        }
        if (!more) parts_.tasks.entries_deleted(*ended);
        between();
    }
}

}  // namespace rowlock::detail
