#include "lock/queue/entry_poller.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// A client that has not waited for this long ignores what others commit.
constexpr nanoseconds idle = 50ms;

/// Until a thread that takes several has most likely done so.
constexpr nanoseconds while_taking = 20ms;

/// Missing entries that one call asks after.
constexpr std::size_t many = 16;

}  // namespace

void entry_poller::poll_if_due() {
    constexpr std::size_t few = 64;  // entries, to be read one by one
    if (parts_.registry.empty() || parts_.pacing.due() > parts_.now()) return;
    const nanoseconds began = parts_.now();
    // Begun before the waiters are read: one that is enqueued later asks for another poll.
    parts_.pacing.begin_poll(began);
    try {
        auto queued = parts_.registry.queued();
        auto seen_before = std::exchange(round_, {});
        round_.began = began;
        round_.whole = queued.size() > few || began >= whole_poll_at_;
        if (round_.whole) whole_poll_at_ = began + parts_.context.options.poll_interval;
        (round_.whole ? strays_ : round_.strays) = std::move(seen_before.strays);
        // All are of one session, except while one is being lost.
        while (!queued.empty()) {
            const auto ours = queued.front()->ours;
            // Not that of std::ranges: clang 14 cannot compile what it returns.
            const auto others = std::stable_partition(
                queued.begin(), queued.end(), [&](const auto& each) { return each->ours == ours; });
            poll(ours, {queued.begin(), others});
            queued.erase(queued.begin(), others);
        }
    } catch (...) {
        parts_.pacing.want();
        throw;
    }
    plan_next();
    unwatch_commits();
}

void entry_poller::poll(const std::shared_ptr<session>& ours,
                        const std::vector<std::shared_ptr<waiter>>& queued) {
    if (!ours->trust()->open(parts_.context.now())) {
        return lose(*ours, loss_reason::trust_window_passed);
    }
    if (!poll_entries(ours, queued)) {
        return lose(*ours, parts_.sessions.why_over(*ours, *link_, link_.soon()));
    }
    deadlocks_.check(*ours, queued, round_.began, round_.found);
}

/// Returns false if the session is over.
bool entry_poller::poll_entries(const std::shared_ptr<session>& ours,
                                const std::vector<std::shared_ptr<waiter>>& queued) {
    std::vector<grant_id> ids;
    for (const auto& each : queued) each->append_entries_to(ids);
    const auto seen = round_.whole
                          ? parts_.queues().entries_of(*link_, ours->id(), link_.soon())
                          : parts_.queues().entries_at(*link_, ours->id(), ids, link_.soon());
    parts_.context.count(counter::polls);
    if (!seen.session_live) return false;
    entries_by_id entries;
    for (const auto& each : seen.waiting) {
        entries.emplace(each.grant_id, &each);
        act_on(each, *ours);
    }
    for (const auto& name : round_.counted) look_at_holders(name);
    round_.counted.clear();
    std::vector<std::shared_ptr<waiter>> missing;
    for (const auto& each : queued) {
        if (each->of_several()) {
            observe_several(each, entries);
            continue;
        }
        const auto found = entries.find(each->grant_id);
        if (found == entries.end()) {
            missing.push_back(each);
        } else {
            observe(*each, *found->second);
        }
    }
    ask_after(*ours, std::move(missing));
    return true;
}

/// A thread that waits for several locks is called once each of them can be granted, and its entry
/// is the first of its queue. If an entry is missing, the server lost it in a crash, or somebody
/// deleted it or served it alone: then all are given up, and the thread asks again.
void entry_poller::observe_several(const std::shared_ptr<waiter>& which,
                                   const entries_by_id& entries) {
    const protocol::queue_entry* last = nullptr;
    bool complete = true;
    bool fits = true;
    which->for_each_entry([&](const protocol::hold_key& entry) {
        const auto found = entries.find(entry.grant_id);
        complete = complete && found != entries.end();
        if (found == entries.end()) return;
        fits = fits && found->second->servable;
        if (last == nullptr || found->second->position > last->position) last = found->second;
    });
    if (complete) {
        observe(*which, *last);
        if (fits && last->position == 1) parts_.registry.call(*which);
        return;
    }
    // If what it takes is incomplete, the next poll finds that.
    if (parts_.registry.is_taking(*which)) {
        return round_.found.recheck_by(round_.began + while_taking);
    }
    round_.found.changed = true;
    parts_.registry.end(*which, waiter::state::vanished, [&] { give_back(parts_.grants, *which); });
}

void entry_poller::lose(session& ours, loss_reason why) {
    parts_.sessions.lose(ours, why);
    parts_.owner.session_lost(ours.id(), why);
}

/// What the entry shows of its lock and the holders.
void entry_poller::act_on(const protocol::queue_entry& entry, session& ours) {
    if (!ours.grants().knows(entry.grant_id)) {
        // Over since this was read; or an insertion that came late, for which no thread waits: then
        // the next poll finds it, too.
        if (ours.grants().is_unresolved(entry.grant_id)) return;
        round_.strays.insert(entry.grant_id);
        if (strays_.contains(entry.grant_id)) {
            parts_.grants.give_back(ours, entry.key(ours.id()));
        }
        return;
    }
    if (refuse_kind(entry)) return;
    if (entry.holder_expired && round_.ended.insert(entry.holder_session).second) end_holder(entry);
    // Entries come in the order of their tickets: the first of a name covers the others.
    if (entry.behind_watermark && round_.rewound.insert(entry.name).second) reset_watermark(entry);
    // A request for several locks at the head of the queue takes them itself, and polls as well.
    const bool to_serve = entry.servable && !entry.behind_several;
    if (to_serve || entry.holder_expired || entry.behind_watermark) {
        parts_.tasks.serve(entry.name, parts_.now(), protocol::head_of(entry));
    }
    if (entry.counted && !entry.servable) round_.counted.insert(entry.name);
    // Less than 0 if it expired while the statement read: one look more.
    if (entry.remaining != 0us) {
        round_.found.holder_expires(round_.began + std::max(entry.remaining, 0us));
    }
}

/// The name has become a semaphore's, or was one: nobody can ever grant what this entry waits for.
bool entry_poller::refuse_kind(const protocol::queue_entry& entry) {
    if (!entry.semaphore) return false;
    const auto which = parts_.registry.find(entry.grant_id);
    if (!which) return false;
    if (which->wanted(entry.grant_id).of_semaphore()) return false;
    parts_.registry.fail(*which, protocol::name_of_semaphore(entry.name));
    give_back(parts_.grants, *which);
    return true;
}

/// Counted holds are in the way: some may have ended.
void entry_poller::look_at_holders(const std::string& name) {
    // Holds with deadlines of their own may end one after the other.
    constexpr nanoseconds least = 20ms;
    const bool done = link_.write([&](sql::deadline until) {
        const auto seen = parts_.owner.take_back(*link_, {&name, 1}, until).front();
        if (seen.found.remaining != 0us) {  // less: while it was read
            round_.found.holder_expires(round_.began +
                                        std::max<nanoseconds>(seen.found.remaining, least));
        }
        if (seen.any) round_.found.recheck_by(parts_.now());  // there may be more
    });
    if (!done) round_.found.recheck_soon(parts_.now());
}

/// Ends the session first, in a commit of its own; only then may the lease's row change (I3).
/// Another transaction may lock the session's row for long: then the poll goes on without it.
void entry_poller::end_holder(const protocol::queue_entry& entry) {
    const bool done = link_.write([&](sql::deadline until) {
        const auto holder = entry.holder_session;
        if (parts_.context.sessions.end_expired(*link_, holder, until)) {
            parts_.tasks.session_ended(holder);
        }
    });
    if (!done) round_.found.recheck_soon(parts_.now());
}

/// No other client would ever find this entry. An early poll shows whether the reset helped:
/// another transaction may lock the lease's row for long.
void entry_poller::reset_watermark(const protocol::queue_entry& entry) {
    round_.found.recheck_soon(parts_.now());
    try {
        parts_.queues().reset_watermark(*link_, entry.name, entry.ticket, link_.write_deadline());
    } catch (const error& failure) {
        if (!failure.retryable() || !link_.get()->alive()) throw;
    }
}

void entry_poller::observe(waiter& which, const protocol::queue_entry& entry) {
    if (entry.position == 0) return;  // its limit has passed: its thread gives it up
    auto& best = round_.found.best_position;
    best = std::min(best, entry.position);
    which.progress.observe(round_.began, which.position, entry.position);
    if (!parts_.registry.moved(which, entry.position)) return;
    round_.found.changed = true;
    report_position(parts_.context, which, entry.position);
}

/// Our tickets are not there: they were served, or the server lost them in a crash, or another
/// client deleted them.
void entry_poller::ask_after(session& ours, std::vector<std::shared_ptr<waiter>> missing) {
    std::erase_if(missing, [&](const auto& each) { return parts_.registry.is_over(*each); });
    if (missing.empty()) return;
    const nanoseconds sent = parts_.context.now();
    const auto found = served(missing);
    round_.found.changed = true;
    for (std::size_t i = 0; i < missing.size(); ++i) {
        auto& which = *missing[i];
        if (found[i]) {
            verifier_.trust().missed();
            parts_.registry.serve(which, {found[i]->token, sent, found[i]->deadline_us});
            continue;
        }
        // If it turns up after all, on a server that lags behind, no thread waits for it any more.
        parts_.registry.end(which, waiter::state::vanished,
                            [&] { parts_.grants.give_back(ours, which.key()); });
    }
}

/// The grants of these entries, made durable.
std::vector<std::optional<protocol::queue_grant>> entry_poller::served(
    const std::vector<std::shared_ptr<waiter>>& missing) {
    std::vector<protocol::hold_key> entries;
    entries.reserve(missing.size());
    for (const auto& each : missing) entries.push_back(each->key());
    std::vector<std::optional<protocol::queue_grant>> found;
    found.reserve(missing.size());
    for (std::span<const protocol::hold_key> rest{entries}; !rest.empty();) {
        const auto some = rest.first(std::min(rest.size(), many));
        const auto grants = parts_.context.holds.served(*link_, some, link_.soon());
        found.insert(found.end(), grants.begin(), grants.end());
        rest = rest.subspan(some.size());
    }
    return found;
}

void entry_poller::plan_next() {
    const nanoseconds ended = parts_.now();
    parts_.pacing.end_poll(ended, round_.found, next_wakeup());
}

/// What wakes this client before its next poll. New sleeps are taken first: one that begins between
/// the two questions is left to the next poll.
poll_pacing::wakeup entry_poller::next_wakeup() {
    using kind = wakeup::wakeup_source::kind;
    const bool began = parts_.pacing.take_new_sleep();
    const auto ours = parts_.sessions.current();
    switch (source_.wakes(ours ? ours->id() : session_id{})) {
        case kind::notification:
            return poll_pacing::wakeup::notification;
        case kind::interruption:
            return began ? poll_pacing::wakeup::new_sleep : poll_pacing::wakeup::sleep;
        case kind::none:
            break;
    }
    return poll_pacing::wakeup::none;
}

void entry_poller::committed() {
    if (parts_.registry.empty() && parts_.now() - round_.began > idle) {
        source_.want_commits(false);
    } else {
        parts_.pacing.after_commit(round_.found.best_position);
    }
}

/// Each commit to an SQLite file wakes all clients that watch it. Many waiters would spend the
/// machine on polls at each other's hand-overs. So only the first of a queue watches; the others
/// poll again when most of those before them may have been served. A waiter that is served before
/// that is notified by name, or finds it then, after a poll interval at the latest.
void entry_poller::unwatch_commits() {
    if (!source_.watches_commits() || parts_.registry.empty()) return;
    const bool by_name = verifier_.trust().latest() == wakeup_trust::way::message;
    const bool wanted = poll_pacing::should_watch(round_.found.best_position, by_name);
    if (source_.want_commits(wanted)) return;
    nanoseconds rest = parts_.context.options.poll_interval;
    parts_.registry.for_each([&](const waiter& each) {
        if (each.position == 0) return;  // not seen yet
        rest = std::min(rest, parts_.pacing.unwatch_for(each.position, each.progress, by_name));
    });
    parts_.pacing.no_later_than(round_.began + rest);
}

}  // namespace rowlock::detail
