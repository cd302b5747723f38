// Queue operations of a client's calls: waiting in a queue, and finding the waiter a release
// serves.

#include "coordination/lease/acquisition.hpp"
#include "coordination/queue/waiting_room.hpp"
#include <rowlock/error.hpp>

#include <unistd.h>

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::microseconds;
using steady = std::chrono::steady_clock;

}  // namespace

std::shared_ptr<waiting_room> engine::room() {
    const std::lock_guard lock{room_mutex_};
    if (closing_) throw client_destroyed();
    if (!room_) room_ = std::make_shared<waiting_room>(*this);
    return room_;
}

std::shared_ptr<waiting_room> engine::open_room() const noexcept {
    const std::lock_guard lock{room_mutex_};
    return room_;
}

/// Enqueues and waits. Returns nullopt if the queue entry was lost (ask again), null if the
/// caller's time is up or a stop was requested.
std::optional<std::shared_ptr<grant>> engine::wait_in_queue(acquisition& call) {
    // A lost attempt that is still in flight must not block our ticket: the heartbeat gives it
    // back.
    call.hand_over();
    const auto at = room();
    const auto place = with_retries(
        limits_of(call), call.stop,
        [&](sql::connection& db, sql::deadline until) { return take_place(call, *at, db, until); });
    if (!place) return std::shared_ptr<grant>{};
    count(counter::queued);
    call.seen_held = true;
    call.had_place = true;
    try {
        if (!at->wait(*place, call.until, call.stop)) return std::shared_ptr<grant>{};
    } catch (...) {
        at->leave(**place);
        throw;
    }
    switch ((*place)->now) {
        case turn::state::served:
            if (auto granted = take_turn(call, **place)) return granted;
            require_timely(call);
            return std::nullopt;
        case turn::state::failed:
            if ((*place)->failure) throw error{*(*place)->failure};
            throw error{errc::lock_lost, "the session or the client ended while waiting"};
        case turn::state::cancelled:
            return std::shared_ptr<grant>{};
        default:  // gone; a grant with its own deadline may have come and expired meanwhile
            require_timely(call);
            return std::nullopt;
    }
}

/// Each attempt has its own id. One whose reply was lost may have been served by the time that is
/// known; otherwise the heartbeat gives it up.
std::shared_ptr<turn> engine::take_place(acquisition& call, waiting_room& at, sql::connection& db,
                                         sql::deadline until) {
    call.use(ensure_session(db, until));
    call.grant_id = next_id();
    call.ours->expect(call.grant_id);
    std::shared_ptr<turn> place;
    try {
        place = at.expect(call.name.str(), call.grant_id, call.ours, call.thread,
                          call.options.deadline.has_value());
    } catch (...) {
        call.ours->forget(call.grant_id);  // nothing was sent
        throw;
    }
    place->contended = call.contended;
    call.holds_others = call.ours->holds_for(call.thread);
    place->holds_others =
        options_.deadlock_detection != deadlock_detection::off && call.holds_others;
    const auto abandon = [&](bool sent) {
        if (!at.withdraw(place)) return false;
        if (sent) {
            give_back(*call.ours, place->name, place->grant_id);
        } else {
            call.ours->forget(place->grant_id);
        }
        return true;
    };
    try {
        queue_.enqueue(db, call.request(), until);
    } catch (const error& failure) {
        if (abandon(failure.kind() == errc::outcome_unknown)) throw;
    } catch (...) {
        if (abandon(true)) throw;  // out of memory: the ticket may have been sent
    }
    at.enqueued(place);
    return place;
}

/// Returns the grant, or null if it came too late: after a pause the session may have expired, and
/// no caller may receive a lease that is not held. The lease goes on to the next waiter.
std::shared_ptr<grant> engine::take_turn(const acquisition& call, const turn& served) {
    const auto& granted = served.granted;
    if (granted->held()) {
        count(counter::acquired);
        count(counter::handed_over);
        report(event_kind::lease_acquired, *granted, {}, call.waited());
        return granted;
    }
    give_back(*granted);
    if (!served.ours->trust()->open(clock_.now())) {
        lose_session(*served.ours, loss_reason::trust_window_passed);
        throw error{errc::lock_lost,
                    "the session ended while waiting: the grant came too late and was given back; "
                    "ask again"};
    }
    return nullptr;
}

std::shared_ptr<grant> engine::grant_to(const turn& served, std::int64_t token, nanoseconds sent,
                                        std::optional<std::int64_t> deadline_us) {
    std::optional<microseconds> deadline;
    if (deadline_us) deadline = microseconds{*deadline_us};
    auto made = make_grant(*served.ours, served.name, served.grant_id, token, sent, deadline,
                           served.thread);
    made->queued = true;
    return made;
}

/// Gives back a grant that no caller wants any more. The heartbeat releases it to the next waiter.
void engine::give_back(grant& unwanted) noexcept {
    unwanted.stopped = true;
    auto expected = grant::state::held;
    unwanted.now.compare_exchange_strong(expected, grant::state::released);
    const auto ours = current();
    // The end of a lost session may wait only for this holder.
    if (!ours || ours->id() != unwanted.session_id) return poke_heartbeat();
    leave_unresolved(
        *ours, unwanted.name,
        {.grant_id = unwanted.grant_id, .not_after = clock_.now(), .surely_ended = true});
}

/// Gives back an abandoned queue entry, and any grant that results from it.
void engine::give_back(session& ours, const std::string& name, std::int64_t grant_id) noexcept {
    leave_unresolved(
        ours, name,
        {.grant_id = grant_id, .not_after = clock_.now() + statement_bound(), .queued = true});
}

/// The table denies a grant that was announced to us: another client may hold the lease.
void engine::refuted(grant& believed) noexcept {
    if (!lose(believed, loss_reason::forced_release)) return;
    if (const auto ours = current(); ours && ours->id() == believed.session_id) {
        give_up(*ours, believed);
    }
}

/// Notifies the waiter that the release served. If it served none, a ticket may have been committed
/// after its snapshot.
void engine::after_release(sql::connection& db, const std::string& name,
                           const strategy::release_outcome& done, sql::deadline until) noexcept {
    if (done.unwaited) return;
    if (!done.next) return look_for_waiters(name);
    wake(db, *done.next, until);
    try {
        note_contended(name);
        if (const auto at = open_room()) at->handed_over(*done.next);
    } catch (...) {
        // Out of memory: the waiter learns by its poll.
    }
}

void engine::look_for_waiters(const std::string& name, bool reply_lost) noexcept {
    try {
        const auto at = room();
        at->look(name);
        if (reply_lost) at->look_at_all();
    } catch (...) {
        // No thread, or out of memory: waiters poll for themselves.
    }
}

void engine::look_for_waiters_soon(const std::string& name) noexcept {
    try {
        room()->look_for_a_while(name);
    } catch (...) {
        // As above.
    }
}

void engine::look_for_waiters_after(std::int64_t ended_session) noexcept {
    try {
        room()->session_ended(ended_session);
    } catch (...) {
        // As above.
    }
}

/// Wakes the waiter if the granting statement did not. A hint: if it is lost, a poll finds the
/// grant.
void engine::wake(sql::connection& db, const strategy::handed_over& next,
                  sql::deadline until) noexcept {
    if (const auto ours = current(); ours && ours->id() == next.session) return;
    queue_.tell_served(db, next, until);
}

/// Whether a session is notified without the database: it waits on this machine.
bool engine::is_near(const strategy::wake_address& session) const noexcept {
    return options_.wake_ups == wakeup_mode::automatic && strategy::is_near(session);
}

void engine::note_contended(const std::string& name) {
    constexpr auto memory = 1s;
    constexpr std::size_t many = 1024;
    const auto now = steady::now();
    const std::lock_guard lock{state_mutex_};
    if (contended_.size() >= many) {
        std::erase_if(contended_, [&](const auto& each) { return each.second < now; });
    }
    contended_[name] = now + memory;
}

bool engine::is_contended(const std::string& name) const {
    const std::lock_guard lock{state_mutex_};
    const auto found = contended_.find(name);
    return found != contended_.end() && steady::now() < found->second;
}

/// The last act of a client: hands its leases to waiters.
void engine::hand_on(std::vector<std::string> names, const std::vector<std::int64_t>& ended,
                     sql::deadline until) noexcept {
    if (names.empty() && ended.empty()) return;
    try {
        auto& db = heartbeat_connection(until);
        auto names_with_waiters = queue_.names_with_waiters(db, names, until);
        for (const auto id : ended) {
            for (auto& name : queue_.queues_of_session(db, id, until))
                names_with_waiters.push_back(name);
        }
        for (const auto& name : names_with_waiters) {
            if (const auto next = queue_.grant_next(db, name, until)) wake(db, *next, until);
        }
    } catch (...) {
        // Database out of reach: waiters poll for themselves.
    }
}

/// Identifies the acquirer for deadlock detection.
std::string engine::thread_label() const {
    if (options_.deadlock_detection == deadlock_detection::by_client) return "client";
    thread_local const std::string label = std::to_string(gettid());
    return label;
}

}  // namespace rowlock::detail
