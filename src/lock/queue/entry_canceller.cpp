#include "lock/queue/entry_canceller.hpp"

#include <algorithm>
#include <utility>

namespace rowlock::detail {

void entry_canceller::cancel_given_up() {
    // Entries of waiters that gave up meanwhile do not wait for locked ones.
    const bool retries = retry_due() <= parts_.now();
    if (retries) parts_.registry.retry_given_up();
    auto given_up = parts_.registry.take_given_up();
    bool done = true;
    try {
        if (retries) {
            done = cancel_one_by_one(std::move(given_up));
        } else {
            done = cancel(given_up);
        }
    } catch (...) {
        parts_.registry.retry_given_up();
        throw;
    }
    if (!done && (retries || !retry_)) {
        retry_ = retry_.value_or(task{parts_.now()}).postponed(parts_.now());
    } else if (done && retries) {
        retry_.reset();
    }
}

/// One that is locked holds up none of the others: it ends this attempt, and the next one begins
/// behind it. Returns false if there was such a one.
bool entry_canceller::cancel_one_by_one(std::vector<std::shared_ptr<waiter>> all) {
    std::ranges::sort(all, {}, [](const auto& each) { return each->grant_id; });
    const auto behind =
        std::ranges::find_if(all, [&](const auto& each) { return each->grant_id > locked_; });
    std::rotate(all.begin(), behind, all.end());
    for (const auto& each : all) {
        if (cancel({each})) continue;
        locked_ = each->grant_id;
        return false;
    }
    return true;
}

/// Returns false if one of them is locked.
bool entry_canceller::cancel(const std::vector<std::shared_ptr<waiter>>& all) {
    std::vector<grant_id> ids;
    for (const auto& each : all) each->append_entries_to(ids);
    if (ids.empty()) return true;
    std::vector<grant_id> deleted;
    const bool done = link_.write(
        [&](sql::deadline until) { deleted = parts_.queues().cancel(*link_, ids, until); });
    if (!done) return false;
    for (const auto& each : all) {
        if (each->of_several()) {
            answer_several(*each, deleted);
        } else {
            answer(each, std::ranges::find(deleted, each->grant_id) != deleted.end());
        }
    }
    return true;
}

/// Its thread was not taking the leases: an entry that was not deleted was lost. Should it have
/// been served alone, the heartbeat gives that back.
void entry_canceller::answer_several(waiter& which, const std::vector<grant_id>& deleted) {
    const bool ended = parts_.registry.end(
        which, waiter::state::cancelled, [&] { settle_cancelled(parts_.grants, which, deleted); });
    if (!ended) return;
    parts_.context.count(counter::cancelled);
    which.for_each_entry(
        [&](const protocol::hold_key& entry) { look_behind(std::string{entry.name}); });
}

/// A statement that serves the queue may have chosen the entry and found it gone; or those behind
/// it waited for it, and fit beside the counted holds.
void entry_canceller::look_behind(const std::string& name) {
    parts_.tasks.check_now(name, parts_.now());
}

/// An entry that is gone was served, unless another client deleted it. If its thread has left, the
/// lease goes on to the next waiter at once, and other clients find it held no longer than the
/// round trips of this client make it.
void entry_canceller::answer(const std::shared_ptr<waiter>& which, bool deleted) {
    auto& registry = parts_.registry;
    // Served meanwhile by another thread: its own thread has the grant, or it is unwanted.
    if (registry.is_over(*which)) return;
    if (!deleted && registry.has_left(*which)) {
        deleted = hand_over(which->key());
        if (deleted) verifier_.trust().missed();
    } else if (!deleted) {
        const nanoseconds sent = parts_.context.now();
        const auto granted = parts_.context.holds.served(*link_, which->key(), link_.soon());
        if (granted) {
            verifier_.trust().missed();
            return registry.serve(*which, {granted->token, sent, granted->deadline_us});
        }
    }
    const bool ended = registry.end(*which, waiter::state::cancelled, [&] {
        if (deleted) {
            which->ours->grants().forget(which->grant_id);
        } else {
            parts_.grants.give_back(*which->ours, which->key());
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
    look_behind(which->name);
}

/// Hands a grant that served a thread that had left to the next waiter. Returns false if there is
/// no such grant, or its row is locked.
bool entry_canceller::hand_over(const protocol::hold_key& which) {
    protocol::release_outcome done;
    link_.write([&](sql::deadline until) {
        done = parts_.context.holds.release(*link_, which, {.contended = true}, until);
    });
    if (done.freed) {
        parts_.owner.after_release(*link_, std::string{which.name}, done, link_.soon());
    }
    return done.freed;
}

void entry_canceller::give_back_unwanted() {
    auto all = parts_.registry.take_unwanted();
    while (!all.empty()) {
        const auto granted = all.back();
        all.pop_back();
        // The grant stays known here until it is freed, or the heartbeat has it on its list: a
        // comparison with the database in between finds nothing to give back.
        try {
            if (hand_over(granted->key())) {
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
            const auto until = link_.write_deadline();
            more = parts_.queues().delete_entries_of(*link_, *ended, until);
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
