// Background work of the engine: heartbeat, watchdog, reaper, and the clean-up of lost sessions.

#include "coordination/lease/engine.hpp"
#include "coordination/queue/waiting_room.hpp"
#include "housekeeping/reaping.hpp"
#include "sql/brief_wait.hpp"
#include "sql/connection_memory.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using base::alarm;
using steady = std::chrono::steady_clock;

/// Whether a release of this grant is under way or has just finished.
bool is_ending(const std::vector<std::shared_ptr<grant>>& held, std::int64_t grant_id) {
    return std::ranges::any_of(held, [&](const auto& each) {
        const auto now = each->now.load();
        return each->grant_id == grant_id &&
               (now == grant::state::releasing || now == grant::state::released);
    });
}

/// Whether the rows that were read have this grant. @param tokens by grant id
bool is_there(const std::unordered_map<std::int64_t, std::int64_t>& tokens, const grant& one) {
    const auto found = tokens.find(one.grant_id);
    return found != tokens.end() && found->second == one.token.value();
}

}  // namespace

/// One step of the heartbeat thread; returns when the next is due.
nanoseconds engine::beat() noexcept {
    const auto ours = current();
    if (shares() && heartbeat_db_ && !heartbeat_db_->alive()) drop_heartbeat_connection();
    try {
        if (ours) {
            const nanoseconds next = std::min(beat(*ours), next_end());
            hear(*ours);  // a statement may have read a notification
            if (heartbeat_db_ && !heartbeat_db_->alive()) return clock_.now();
            return std::min(next, ours->news_at());
        }
        for (const auto id : end_lost_sessions(steady::now() + options_.statement_timeout)) {
            look_for_waiters_after(id);
        }
        failed_beats_ = 0;
        return next_end();
    } catch (const std::exception& failure) {
        return ours ? after_failed_beat(*ours, failure) : pause_after_failure();
    }
}

nanoseconds engine::beat(session& ours) {
    const nanoseconds connect_at = first_connection_at(ours);
    if (clock_.now() < connect_at) return connect_at;
    // Opening may outlast the trust window: the second heartbeat extends it meanwhile.
    auto& db = heartbeat_connection(steady::now() + options_.statement_timeout);
    const auto until = heartbeat_deadline(ours);
    if (!beat_is_due(ours, clock_.now())) {
        listen_with_heartbeat(ours, db, until);
        return ours.last_beat() + beat_period();
    }
    const auto told = ours.told();
    switch (send_beat(ours, db, until)) {
        case beaten::again:
            return clock_.now();
        case beaten::later:
            return pause_after_failure();
        case beaten::confirmed:
            break;
    }
    ours.settle_news(told, clock_.now());
    after_beat(ours, until);
    listen_with_heartbeat(ours, db, until);
    failed_beats_ = 0;
    const nanoseconds next = ours.last_beat() + beat_period();
    return std::exchange(put_off_, false) ? std::min<nanoseconds>(next, clock_.now() + 500ms)
                                          : next;
}

/// Sends a heartbeat on any connection. The heartbeat thread and the second heartbeat may call it
/// concurrently: both only move the expiry forward. `again`: the session is lost, or its revision
/// moved, and the next heartbeat is due at once. `later`: the waiting room must first find out
/// which grant a row belongs to.
engine::beaten engine::send_beat(session& ours, sql::connection& db, sql::deadline until) {
    const nanoseconds sent = clock_.now();
    if (!ours.trust()->open(sent)) {
        lose_session(ours, loss_reason::trust_window_passed);
        return beaten::again;
    }
    if (!protocol_.heartbeat(db, ours.id(), ours.revision, until)) {
        const auto state = protocol_.state_of(db, ours.id(), until);
        if (!state.live) {
            lose_session(ours, why_over(ours, db, until));
            return beaten::again;
        }
        // Another client has taken one of our leases or requests one. We adopt the revision once
        // every request is known: until then no heartbeat extends the trust in a requested lease.
        if (!hear_requests(ours, db, until)) {
            if (const auto at = open_room()) at->look_at_all();
            return beaten::later;
        }
        ours.revision = state.revision;
        compare_wanted_ = true;
        return beaten::again;
    }
    const nanoseconds answered = clock_.now();
    if (!ours.trust()->extend(sent + options_.ttl - options_.margin, answered)) {
        lose_session(ours, loss_reason::trust_window_passed);
        return beaten::again;
    }
    note_round_trip(answered - sent);
    count(counter::heartbeats);
    if (sent - ours.last_beat() > options_.heartbeat * 3 / 2) {
        events_.post({.kind = event_kind::heartbeat_late, .session = ours.id()});
    }
    ours.beaten(sent);
    return beaten::confirmed;
}

/// A lease whose row ends earlier than we know was requested: it is declared lost, and its holder
/// stops and releases it. False if a row may belong to a grant that is still pending and could be
/// requested.
bool engine::hear_requests(session& ours, sql::connection& db, sql::deadline until) {
    const auto held = ours.held();
    const auto rows = protocol_.leases_of(db, ours.id(), until);
    const nanoseconds read = clock_.now();
    bool all_known = true;
    for (const auto& row : rows) {
        if (!row.deadline_us) continue;
        const auto granted = std::ranges::find_if(
            held, [&](const auto& each) { return each->grant_id == row.grant_id; });
        if (granted == held.end()) {
            all_known = all_known && !ours.knows(row.grant_id);
            continue;
        }
        // Our value is early by the transit of the acquire, the row's is late by that of the
        // answer: an unchanged deadline never looks shortened.
        const grant& each = **granted;
        const nanoseconds ends = read + std::chrono::microseconds{*row.deadline_us};
        const bool requested =
            each.deadline == alarm::never || ends < each.deadline + each.deadline_margin;
        if (!requested || !lose(**granted, loss_reason::release_requested)) continue;
        // A release that came in between has found the grant lost.
        if (each.stopped) clear_row(**granted);
    }
    return all_known;
}

/// Maintenance that needs a live session. A task that lost the connection (a row locked too long)
/// runs last in the next round.
void engine::after_beat(session& ours, sql::deadline until) {
    // A row locked by a fenced transaction must not delay all the others.
    if (!heartbeat_is_brief_ && (compare_wanted_ || ours.unresolved_due(clock_.now()) > 0)) {
        strategy::set_short_lock_timeout(*heartbeat_db_, until);
        heartbeat_is_brief_ = true;
    }
    const bool last = resolve_last_;
    if (!last) resolve_unknown(ours, until);
    for (const auto id : end_lost_sessions(until)) look_for_waiters_after(id);
    compare_if_wanted(ours, until);
    if (last) resolve_unknown(ours, until);
}

void engine::compare_if_wanted(session& ours, sql::deadline until) {
    constexpr int beats_between = 5;
    if (ours.ever_unknown() && ++ours.beats_since_compared >= beats_between) compare_wanted_ = true;
    if (!compare_wanted_) compare_held(ours, until);
    if (!compare_wanted_.exchange(false)) return;
    try {
        compare_with_database(ours, until);
        ours.beats_since_compared = 0;
        ours.beats_since_read = 0;
    } catch (...) {
        compare_wanted_ = true;
        resolve_last_ = false;
        throw;
    }
}

/// When to open the heartbeat's connection. A new session's first heartbeat is far away, so the
/// connection opens soon after the session, not with it: a client that briefly takes one lock never
/// needs it. On a slow link opening takes long and begins at once. In the past if the connection
/// exists or work is due.
nanoseconds engine::first_connection_at(const session& ours) const {
    constexpr nanoseconds soon = 200ms;
    constexpr nanoseconds slow = 20ms;
    if (heartbeat_db_ || beat_is_due(ours, clock_.now()) || round_trip() > slow) {
        return nanoseconds::min();
    }
    return ours.last_beat() + std::min<nanoseconds>(soon, options_.heartbeat / 4);
}

/// The thread may be poked before the period ends: at the opening of a session, only to open the
/// connection; for work that needs a live session first; or for a notified change.
bool engine::beat_is_due(const session& ours, nanoseconds now) const {
    return now >= ours.last_beat() + beat_period() || compare_wanted_ || next_end() <= now ||
           ours.unresolved_due(now) > 0 || ours.news_at() <= now;
}

/// The rest of the trust window: a late answer is worth more than the connection that a timeout
/// would break. The second heartbeat makes the second attempt in parallel.
sql::deadline engine::heartbeat_deadline(const session& ours) const {
    const nanoseconds left = ours.trust()->until() - clock_.now();
    return steady::now() +
           std::min<nanoseconds>(std::max<nanoseconds>(left, 50ms), options_.statement_timeout);
}

/// A shared connection stays open as long as it has a user left.
void engine::drop_heartbeat_connection() noexcept {
    heartbeat_db_.reset();
    heartbeat_connected_ = false;
    if (shares()) pool_.renew();
}

sql::connection& engine::heartbeat_connection(sql::deadline until) {
    if (heartbeat_db_ && (!heartbeat_db_->alive() || heartbeat_db_->discarded() ||
                          leads_elsewhere(*heartbeat_db_))) {
        drop_heartbeat_connection();
    }
    if (!heartbeat_db_) {
        heartbeat_listens_for_ = 0;
        heartbeat_may_listen_ = true;
        const auto began = steady::now();
        heartbeat_db_ = make_connection(until, rank::first);
        warn_of_short_ttl(steady::now() - began);
        heartbeat_is_brief_ = false;
        heartbeat_connected_ = true;
        if (heartbeat_was_connected_) {
            count(counter::reconnects);
            events_.post({.kind = event_kind::reconnected});
            compare_wanted_ = true;
        } else if (counters_[static_cast<std::size_t>(counter::released)] > 0) {
            // A crash since the session was opened may have undone a release that did not wait for
            // the disk, and no connection is left that noticed the crash.
            compare_wanted_ = true;
        }
        heartbeat_was_connected_ = true;
    }
    return *heartbeat_db_;
}

nanoseconds engine::after_failed_beat(session& ours, const std::exception& failure) noexcept {
    count(counter::heartbeat_failures);
    if (heartbeat_db_ && heartbeat_db_->discarded()) {
        // The server has left its cluster or accepts no writes: our other connections lead there.
        renew_connections();
    }
    try {
        events_.post({.kind = event_kind::heartbeat_failed,
                      .session = ours.id(),
                      .message = failure.what()});
    } catch (...) {
        // No memory for the message.
    }
    return pause_after_failure();
}

/// Short at first, then a quarter of the period: the trust window is running out, or other clients
/// wait for leases we have lost.
nanoseconds engine::pause_after_failure() noexcept {
    const nanoseconds soon = 20ms * (1 << std::min(failed_beats_++, 10));
    return clock_.now() + std::min<nanoseconds>(soon, options_.heartbeat / 4);
}

/// A change by hand moves no revision. Every third heartbeat therefore reads the rows of the held
/// leases by name: a lease that its row no longer shows is detected within five. A row that seems
/// not to be ours triggers the full comparison, which reads again.
void engine::compare_held(session& ours, sql::deadline until) {
    constexpr int beats_between = 3;
    if (++ours.beats_since_read < beats_between) return;
    ours.beats_since_read = 0;
    const auto held = ours.held();
    std::vector<std::string> names;
    for (const auto& each : held) names.push_back(each->name);
    if (names.empty()) return;
    std::unordered_map<std::int64_t, std::int64_t> tokens;
    for (const auto& row : queue_.held_of(*heartbeat_db_, ours.id(), names, until)) {
        tokens.emplace(row.grant_id, row.granted.token);
    }
    for (const auto& each : held) {
        if (!is_there(tokens, *each) && each->now == grant::state::held) compare_wanted_ = true;
    }
}

/// For a lease whose row is gone or has another token, perhaps set back by hand: no later grant may
/// have a smaller token than ours.
void engine::raise_floor_past(const grant& lost, sql::deadline until) {
    const auto seen = protocol_.probe(*heartbeat_db_, lost.name, lost.session_id, until);
    if (seen.token >= lost.token.value()) return;
    protocol_.lift_floor(*heartbeat_db_, lost.token.value(), until);
}

/// SQLite: a task that did not fit into its time is retried soon, with twice the time.
void engine::put_off() noexcept {
    if (source_.speaks() != sql::dialect::sqlite) return;
    row_patience_ = std::min<nanoseconds>(2 * row_patience_, options_.statement_timeout);
    put_off_ = true;
}

/// Runs after a reconnect, a broken connection or a changed revision. Gives back rows of our
/// session that have no grant here; declares lost the leases whose rows are no longer ours.
void engine::compare_with_database(session& ours, sql::deadline until) {
    const std::unique_lock reclaiming{reclaiming_, std::try_to_lock};
    if (!reclaiming) {
        compare_wanted_ = true;
        return;
    }
    // Copied before the rows are read: a grant that is newer than the read is not judged by it.
    const auto held = ours.held();
    auto& db = *heartbeat_db_;
    // Queue entries first: one that is served before it is cancelled then appears among the leases.
    give_up_strays(ours, until);
    const auto rows = protocol_.leases_of(db, ours.id(), until);
    std::unordered_map<std::int64_t, std::int64_t> tokens;
    for (const auto& row : rows) tokens.emplace(row.grant_id, row.token);
    // First the work that needs no row of the table: the statements below may wait for a lock.
    std::vector<std::shared_ptr<grant>> lost;
    for (const auto& granted : held) {
        if (is_there(tokens, *granted) || !lose(*granted, loss_reason::forced_release)) continue;
        give_up(ours, *granted);
        lost.push_back(granted);
    }
    for (const auto& each : lost) raise_floor_past(*each, until);
    for (const auto& row : rows) {
        if (ours.knows(row.grant_id)) {
            // The release of this grant may have been committed and answered, then lost in the
            // crash that caused this comparison, before its thread called forget(): compare once
            // more.
            if (is_ending(held, row.grant_id)) compare_wanted_ = true;
            continue;
        }
        if (ours.is_unresolved(row.grant_id)) continue;
        try {
            give_back_stray(ours, row, strategy::row_lock_deadline(db, until, row_patience_));
        } catch (const error& failure) {
            if (!strategy::is_locked(db, failure)) {
                fail_waiters(row.name, failure);
                throw;
            }
            put_off();
            compare_wanted_ = true;
        }
    }
}

/// Releases a row of our session whose grant id is unknown here.
void engine::give_back_stray(session& ours, const strategy::session_lease& row,
                             sql::deadline until) {
    const auto done =
        queue_.release(*heartbeat_db_, row.name, ours.id(), row.grant_id, true, until);
    if (!done.freed) return;
    after_release(*heartbeat_db_, row.name, done, until);
    events_.post({.kind = event_kind::resolved,
                  .name = row.name,
                  .token = fencing_token{row.token},
                  .session = ours.id(),
                  .message = "a grant that nobody here holds was given back"});
}

/// Adds a grant that the table denies to the unresolved ones. If a crash lost the hand-over, the
/// queue entry it came from is back and would be served without a waiter: either the lease or the
/// entry exists, and one attempt finds it. If the read came from a node that lags behind, or the
/// row's token was changed by hand, the row is ours after all; it is not given back until its
/// holder has stopped or the margin is over.
void engine::give_up(session& ours, const grant& lost) noexcept {
    const nanoseconds now = clock_.now();
    leave_unresolved(ours, lost.name,
                     {.grant_id = lost.grant_id,
                      .not_after = now,
                      .surely_ended = true,
                      .queued = lost.queued,
                      .not_before = now + options_.margin});
}

/// Cancels queue entries without a waiter: created by a statement that ran late, or restored
/// because a crash lost the hand-over that had served them. An entry that merely ended between the
/// read and the check of what we know is not there to cancel.
void engine::give_up_strays(session& ours, sql::deadline until) {
    for (const auto& place : queue_.places_of(*heartbeat_db_, ours.id(), until).waiting) {
        if (ours.knows(place.grant_id) || ours.is_unresolved(place.grant_id)) continue;
        const std::array<std::int64_t, 1> id{place.grant_id};
        if (queue_.cancel(*heartbeat_db_, id, until).empty()) continue;
        look_for_waiters(place.name);
        events_.post({.kind = event_kind::resolved,
                      .name = place.name,
                      .session = ours.id(),
                      .message = "a place at which nobody waited was given up"});
    }
}

void engine::resolve_unknown(session& ours, sql::deadline until) {
    // A grant that reclaim() is taking over must not be released under it.
    const std::unique_lock reclaiming{reclaiming_, std::try_to_lock};
    if (!reclaiming) return;
    for (const auto& unknown : ours.unresolved()) {
        if (!ours.is_unresolved(unknown.grant_id) || !unknown.is_due(clock_.now())) continue;
        try {
            resolve(ours, unknown,
                    strategy::row_lock_deadline(*heartbeat_db_, until, row_patience_));
            row_patience_ = strategy::brief;
        } catch (const error& failure) {
            if (!strategy::is_locked(*heartbeat_db_, failure)) {
                ours.postpone(unknown.grant_id);  // the others run first the next time
                resolve_last_ = true;
                fail_waiters(unknown.name, failure);
                throw;
            }
            put_off();
        }
    }
    resolve_last_ = false;
}

/// A lease that cannot be given back (tables of another version, or a missing right) stays held
/// while our session lives. Our own threads would wait for it indefinitely.
void engine::fail_waiters(std::string_view name, const error& why) {
    if (why.kind() != errc::schema_outdated && why.kind() != errc::access_denied) return;
    if (!heartbeat_db_->alive()) return;
    if (const auto at = open_room()) at->fail(why, name);
}

void engine::resolve(session& ours, const unresolved_grant& unknown, sql::deadline until) {
    // Read before the release is sent: the release does not resolve a row created later.
    const nanoseconds sent = clock_.now();
    // The queue entry first: once it is gone it cannot become a grant.
    const std::array<std::int64_t, 1> place{unknown.grant_id};
    const bool cancelled = unknown.queued && !queue_.cancel(*heartbeat_db_, place, until).empty();
    const auto done = cancelled ? strategy::release_outcome{false, {}}
                                : queue_.release(*heartbeat_db_, unknown.name, ours.id(),
                                                 unknown.grant_id, true, until);
    if (done.freed) after_release(*heartbeat_db_, unknown.name, done, until);
    if (cancelled) look_for_waiters(unknown.name);
    if (!done.freed && !cancelled && sent <= unknown.not_after) return;
    ours.resolved(unknown.grant_id);
    if (unknown.surely_ended) return;
    events_.post({.kind = event_kind::resolved,
                  .name = unknown.name,
                  .session = ours.id(),
                  .message = done.freed  ? "a grant whose reply was lost was given back"
                             : cancelled ? "a place at which nobody waited was given up"
                                         : "no grant came of it"});
}

/// Ends sessions that we no longer trust but that may still live in the database, as soon as
/// permitted, so that no waiter has to wait for their ttl.
std::vector<std::int64_t> engine::end_lost_sessions(sql::deadline until) {
    std::vector<std::int64_t> ended;
    for (;;) {
        std::int64_t id = 0;
        {
            const nanoseconds now = clock_.now();
            const std::lock_guard lock{state_mutex_};
            std::erase_if(to_end_, [&](const auto& it) { return it.expired_by < now; });
            const auto next = std::ranges::find_if(
                to_end_, [&](const auto& it) { return end_at(it, now) <= now; });
            if (next == to_end_.end()) return ended;
            id = next->which->id();
        }
        ended.reserve(ended.size() + 1);
        protocol_.end_session(heartbeat_connection(until), id, until);
        ended.push_back(id);
        const std::lock_guard lock{state_mutex_};
        std::erase_if(to_end_, [&](const auto& it) { return it.which->id() == id; });
    }
}

/// When a lost session may be ended; requires state_mutex_. Ending passes its leases on at once, so
/// it waits until the margin since the loss is over or every holder has reported that it stopped.
/// Waiters and calls that have not returned have no holder. A client that is destroyed releases its
/// leases.
nanoseconds engine::end_at(const lost_session& lost, nanoseconds now) const {
    return closing_ || !lost.which->has_holder(now) ? nanoseconds::min() : lost.not_before;
}

nanoseconds engine::next_end() const {
    const nanoseconds now = clock_.now();
    nanoseconds next = alarm::never;
    const std::lock_guard lock{state_mutex_};
    for (const auto& each : to_end_) next = std::min(next, end_at(each, now));
    return next;
}

/// For a session whose holders have just been notified of its loss.
void engine::begin_margin(std::int64_t lost) noexcept {
    const nanoseconds now = clock_.now();
    const std::lock_guard lock{state_mutex_};
    for (auto& each : to_end_) {
        if (each.which->id() != lost) continue;
        each.not_before = now + options_.margin;
        each.expired_by = each.not_before + options_.ttl;
    }
    if (heartbeat_) heartbeat_->poke();
}

/// One step of the watchdog: no network, no waiting. It starts the second heartbeat when the first
/// is late.
nanoseconds engine::watch() noexcept {
    const nanoseconds now = clock_.now();
    nanoseconds next = alarm::never;
    if (const auto ours = current()) {
        if (ours->trust()->open(now)) {
            next = std::min(ours->trust()->until(), start_second_heartbeat(*ours, now));
        } else {
            lose_session(*ours, loss_reason::trust_window_passed);
        }
    }
    return std::min(next, watch_deadlines(now));
}

nanoseconds engine::watch_deadlines(nanoseconds now) {
    for (;;) {
        std::shared_ptr<grant> passed;
        bool over = false;
        {
            const std::lock_guard lock{state_mutex_};
            if (deadlines_.empty()) return alarm::never;
            const auto next = deadlines_.begin();
            if (next->first.first > now) return next->first.first;
            auto entry = deadlines_.extract(next);
            passed = entry.mapped().of.lock();
            if (!passed) continue;
            over = std::exchange(entry.mapped().lost, true);
            if (!over) {
                // Due again a margin later. Reuses the node: no allocation.
                entry.key().first = std::max(now + passed->deadline_margin, passed->deadline_over);
                deadlines_.insert(std::move(entry));
            }
        }
        lose(*passed, loss_reason::deadline_passed);
        const bool by_deadline =
            passed->now == grant::state::lost && passed->reason == loss_reason::deadline_passed;
        if (by_deadline && (over || passed->stopped)) clear_row(*passed);
    }
}

/// Clears the row of a lease whose own deadline is over, to keep lists readable: the lease is free
/// by the database's definition. Before the deadline, only once its holder has reported that it
/// stopped.
void engine::clear_row(grant& passed) noexcept {
    if (passed.row_given_up.exchange(true)) return;
    const auto ours = current();
    if (!ours || ours->id() != passed.session_id) return;
    leave_unresolved(
        *ours, passed.name,
        {.grant_id = passed.grant_id, .not_after = clock_.now(), .surely_ended = true});
}

nanoseconds engine::reap_once() noexcept {
    const auto& options = *options_.reaper;
    try {
        event done{.kind = event_kind::reaped};
        try {
            const auto until = steady::now() + options_.statement_timeout;
            const auto db = pool_.make(until);
            try {
                done.message = to_string(
                    strategy::reap_round(*db, statements_, options, reaping_.get_token()));
            } catch (...) {
                if (!db->alive()) connection_broke();
                throw;
            }
        } catch (const std::exception& failure) {
            done.message = std::string{"the round failed and will be repeated: "} + failure.what();
        }
        events_.post(std::move(done));
    } catch (...) {
        // No memory for the message.
    }
    return clock_.now() + options.interval;
}

void engine::lose_session(session& ours, loss_reason why) noexcept {
    ours.trust()->close();
    {
        const std::lock_guard lock{state_mutex_};
        if (!current_ || current_->id() != ours.id()) return;  // another thread was faster
        try {
            if (why == loss_reason::trust_window_passed || why == loss_reason::server_changed) {
                to_end_.push_back({current_, alarm::never, alarm::never});
            }
        } catch (...) {
            // No memory: the session expires.
        }
        current_.reset();
    }
    if (why == loss_reason::server_changed) {
        // What we learnt was true of the old server, and connections to it are useless.
        names_.forget_all();
        renew_connections();
    }
    events_.post({.kind = event_kind::session_ended, .reason = why, .session = ours.id()});
    ours.for_each_held([&](grant& each) { lose(each, why); });
    if (const auto room = open_room()) room->session_lost(ours.id(), why);
    begin_margin(ours.id());
}

/// True if this call declared the loss.
bool engine::lose(grant& lost, loss_reason why, grant::state from) noexcept {
    // The reason first: a thread that sees the state reads it. The first reason stays.
    auto none = loss_reason::none;
    if (lost.now == from) lost.reason.compare_exchange_strong(none, why);
    if (!lost.now.compare_exchange_strong(from, grant::state::lost)) return false;
    count(counter::lost);
    if (lost.watched) signal(lost);
    report(event_kind::lease_lost, lost);
    return true;
}

std::unique_ptr<sql::connection> engine::make_connection(sql::deadline until, rank who) {
    auto db = shares() ? shared_.join(who, until) : connect(until);
    require_same_server(*db, until);
    return db;
}

std::unique_ptr<sql::connection> engine::connect(sql::deadline until) {
    auto db = source_.connect(until);
    protocol_.set_up(*db, options_.statement_timeout, until);
    // A heartbeat must not wait for another user's row lock.
    if (shares()) strategy::set_short_lock_timeout(*db, until);
    return db;
}

/// Checks a new connection. If it leads to another server than our session's, the session and all
/// its leases are lost: a promoted standby may not know them. The statements would find that too
/// (fragment `here`); this finds it with the first connection, and gives the reason. The caller's
/// attempt was meant for the old session and is repeated without it.
void engine::require_same_server(sql::connection& db, sql::deadline until) {
    const auto ours = current();
    if (!ours || ours->server().empty()) return;
    const auto server = protocol_.server_of(db, until);
    if (!server) throw strategy::leads_to_standby();
    if (!ours->lives_elsewhere(server)) return;
    lose_session(*ours, loss_reason::server_changed);
    throw error{errc::database_unreachable,
                "another server answers than before, such as a standby that was promoted: all "
                "leases are lost; try again"};
}

/// Whether an existing connection leads to another server than the current session's.
bool engine::leads_elsewhere(sql::connection& db) const {
    const auto ours = current();
    return ours && ours->lives_elsewhere(sql::memory_of(db).server);
}

/// For a session that the database does not find alive. Behind a pooler the server may have changed
/// under a connection.
loss_reason engine::why_over(const session& ours, sql::connection& db,
                             sql::deadline until) const noexcept {
    try {
        if (!ours.server().empty() && ours.lives_elsewhere(protocol_.server_of_again(db, until))) {
            return loss_reason::server_changed;
        }
    } catch (const std::exception&) {
        // The session is over, whatever the reason.
    }
    return loss_reason::session_ended;
}

loss_reason engine::why_over(const session& ours) noexcept {
    if (ours.server().empty()) return loss_reason::session_ended;
    try {
        const auto until = steady::now() + options_.statement_timeout;
        const auto db = take_spare_connection(until);  // a fence may call this
        return why_over(ours, *db, until);
    } catch (const std::exception&) {
        return loss_reason::session_ended;
    }
}

/// Statements on the existing connections run to their end; no call begins there any more.
void engine::renew_connections() noexcept {
    shared_.renew();  // first: a user that joins from now on joins the new one
    pool_.renew();
}

void engine::connection_broke() noexcept {
    count(counter::reconnects);
    if (shares()) pool_.renew();  // an idle user would keep the broken one open
    compare_wanted_ = true;
    poke_heartbeat();
}

/// True if another client may have waited for our leases. Of `names`, which were released lately,
/// keeps those with a waiter, or all if that is unknown.
bool engine::end_own_session(session& ours, const std::vector<std::int64_t>& places,
                             std::vector<std::string>& names, sql::deadline until) {
    ours.trust()->close();
    ours.for_each_held([&](grant& each) { lose(each, loss_reason::client_closed); });
    event done{.kind = event_kind::session_ended,
               .reason = loss_reason::client_closed,
               .session = ours.id()};
    // The row can be deleted if nothing names it. A held lease does; a queue entry or an unresolved
    // grant may.
    const bool alone = ours.held_count() == 0 && places.empty() && ours.unresolved_count() == 0;
    try {
        auto& db = heartbeat_connection(until);
        if (alone) {
            names = queue_.leave(db, ours.id(), names, until);
        } else {
            protocol_.end_session(db, ours.id(), until);
            queue_.cancel(db, places, until);
        }
    } catch (const std::exception& failure) {
        done.message =
            std::string{"the database was not told; the session expires: "} + failure.what();
    }
    events_.post(std::move(done));
    return !alone;
}

void engine::report(event_kind kind, const grant& about, std::string message,
                    std::chrono::microseconds waited) noexcept {
    if (!options_.on_event) return;
    try {
        events_.post(
            {.kind = kind,
             .name = about.name,
             .token = about.token,
             .reason = kind == event_kind::lease_lost ? about.reason.load() : loss_reason::none,
             .session = about.session_id,
             .waited = waited,
             .message = std::move(message)});
    } catch (...) {
        // No memory for the name: an event is lost, never a lock.
    }
}

/// How long an abandoned statement may still arrive at the server, or run there: its deadline, and
/// the kernel's resends on a connection that fell silent.
nanoseconds engine::statement_bound() const {
    return std::max<nanoseconds>(2 * options_.statement_timeout, 30s) + 1s;
}

}  // namespace rowlock::detail
