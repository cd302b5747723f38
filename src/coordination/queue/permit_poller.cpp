#include "coordination/queue/permit_poller.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <utility>

namespace rowlock::detail {
namespace {

/// Until a thread that takes several has most likely done so.
constexpr nanoseconds while_taking = std::chrono::milliseconds{20};

}  // namespace

using protocol::hold_kind;

bool permit_poller::poll(session& ours, const std::vector<std::shared_ptr<waiter>>& queued,
                         nanoseconds began, poll_result& found) {
    const auto seen = parts_.context.semaphores.entries_of(*link_, ours.id(), link_.soon());
    parts_.context.count(counter::polls);
    if (!seen.session_live) return false;
    strays_before_ = std::exchange(strays_, {});
    full_.clear();
    entries_by_id entries;
    for (const auto& each : seen.waiting) {
        entries.emplace(each.grant_id, &each);
        act_on(each, ours);
    }
    for (const auto& name : full_) look_at_holders(name, began, found);
    for (const auto& each : queued) {
        if (each->of_several()) {
            observe_several(*each, entries, began, found);
            continue;
        }
        const auto entry = entries.find(each->grant_id);
        if (entry != entries.end()) {
            observe(*each, entry->second->position, began, found);
            continue;
        }
        found.changed = true;
        ask_after(ours, *each);
    }
    return true;
}

void permit_poller::observe(waiter& which, std::int64_t position, nanoseconds began,
                            poll_result& found) {
    if (position == 0) return;  // its limit has passed: its thread gives it up
    found.best_position = std::min(found.best_position, position);
    which.progress.observe(began, which.position, position);
    if (!parts_.registry.moved(which, position)) return;
    found.changed = true;
    report_position(parts_.context, which, position);
}

/// As entry_poller::observe_several.
void permit_poller::observe_several(waiter& which, const entries_by_id& entries, nanoseconds began,
                                    poll_result& found) {
    std::int64_t last = 0;
    bool complete = true;
    bool fits = true;
    which.for_each_place([&](const std::string&, grant_id id) {
        const auto entry = entries.find(id);
        complete = complete && entry != entries.end();
        if (entry == entries.end()) return;
        fits = fits && entry->second->servable;
        last = std::max(last, entry->second->position);
    });
    if (complete) {
        observe(which, last, began, found);
        if (fits && last == 1) parts_.registry.call(which);
        return;
    }
    // If what it takes is incomplete, the next poll finds that.
    if (parts_.registry.is_taking(which)) return found.recheck_by(began + while_taking);
    found.changed = true;
    parts_.registry.end(which, waiter::state::vanished, [&] {
        which.for_each_place([&](const std::string& name, grant_id id) {
            parts_.grants.give_back(*which.ours, hold_kind::permits, name, id);
        });
    });
}

void permit_poller::act_on(const protocol::permit_entry& entry, session& ours) {
    if (!ours.grants().knows(entry.grant_id)) {
        // Over since this was read; or an insertion that came late, for which no thread waits: then
        // the next poll finds it, too.
        if (ours.grants().is_unresolved(entry.grant_id)) return;
        strays_.insert(entry.grant_id);
        if (strays_before_.contains(entry.grant_id)) {
            parts_.grants.give_back(ours, hold_kind::permits, entry.name, entry.grant_id);
        }
        return;
    }
    if (!entry.counted) {
        make_counter_anew(entry);
    } else if (entry.servable) {
        if (!entry.behind_several) parts_.tasks.serve_permits_now(entry.name, parts_.now());
    } else {
        full_.insert(entry.name);
    }
}

/// The reaper deletes the counter of a shared_mutex that is not in use; this entry came meanwhile.
void permit_poller::make_counter_anew(const protocol::permit_entry& entry) {
    const auto which = parts_.registry.find(entry.grant_id);
    if (!which || which->permits.of != protocol::counter_kind::shared_mutex) return;
    try {
        (void)parts_.context.semaphores.create_shared_mutex(*link_, entry.name,
                                                            link_.write_deadline());
        link_.wrote();
    } catch (const error& failure) {
        // Its name became a lease's: no one could ever serve it.
        if (failure.kind() != errc::invalid_options) throw;
        return parts_.owner.fail(failure, hold_kind::permits, entry.name);
    }
    parts_.tasks.serve_permits_now(entry.name, parts_.now());
}

void permit_poller::look_at_holders(const std::string& name, nanoseconds began,
                                    poll_result& found) {
    // Holds with deadlines of their own may end one after the other.
    constexpr nanoseconds least = std::chrono::milliseconds{20};
    const bool done = link_.write([&](sql::deadline until) {
        const auto seen = parts_.owner.take_back_permits(*link_, {&name, 1}, until).front();
        if (seen.found.remaining != std::chrono::microseconds{0}) {  // less: while it was read
            found.holder_expires(began + std::max<nanoseconds>(seen.found.remaining, least));
        }
        if (seen.any) found.recheck_by(parts_.now());  // there may be more
    });
    if (!done) found.recheck_soon(parts_.now());
}

/// Its ticket is not there: it was served, or the server lost it in a crash, or another client
/// deleted it.
void permit_poller::ask_after(session& ours, waiter& missing) {
    if (parts_.registry.is_over(missing)) return;
    const nanoseconds sent = parts_.context.now();
    const auto served = parts_.context.semaphores.served(*link_, missing.name, ours.id(),
                                                         missing.grant_id, link_.soon());
    if (served) {
        verifier_.trust().missed();
        return parts_.registry.serve(missing, {served->token, sent, served->deadline_us});
    }
    // If it turns up after all, on a server that lags behind, no thread waits for it any more.
    parts_.registry.end(missing, waiter::state::vanished, [&] {
        parts_.grants.give_back(ours, hold_kind::permits, missing.name, missing.grant_id);
    });
}

}  // namespace rowlock::detail
