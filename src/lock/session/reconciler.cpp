#include "lock/session/reconciler.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rowlock::detail {

namespace {

/// SQLite's clock moves a millisecond at a time.
constexpr nanoseconds longest_clock_step = std::chrono::milliseconds{1};

/// Whether a release of this grant is under way or has just finished.
bool is_ending(const std::vector<std::shared_ptr<grant>>& held, grant_id grant_id) {
    return std::ranges::any_of(held, [&](const auto& each) {
        const auto now = each->now.load();
        return each->grant_id == grant_id &&
               (now == grant::state::releasing || now == grant::state::released);
    });
}

/// Whether the deadline of a hold's row, which was read by then, is earlier than its client
/// believes. Our value is early by the transit of the acquire, the row's is late by that of the
/// answer, and by the step of the database's clock: an unchanged deadline never looks shortened.
bool is_requested(const grant& held, const protocol::session_lease& row, nanoseconds read) {
    const auto believed = held.deadline.load();
    const nanoseconds ends =
        read + std::chrono::microseconds{row.deadline_us.value_or(0)} + longest_clock_step;
    return believed == base::alarm::never || ends < believed + held.deadline_margin.load();
}

using row_tokens = std::unordered_map<grant_id, std::int64_t>;

/// What this client knows of the rows before it reads them. An extension may raise a token
/// meanwhile.
row_tokens tokens_of(const std::vector<std::shared_ptr<grant>>& held) {
    row_tokens all;
    for (const auto& each : held) {
        all.emplace(each->grant_id, each->row_token);
        if (const auto upgrade = each->upgrade.load(); upgrade != grant_id{}) {
            all.emplace(upgrade, each->upgrade_token);
        }
    }
    return all;
}

/// Whether the rows that were read have this grant.
/// @param known before they were read
bool is_there(const row_tokens& rows, const row_tokens& known, const grant& one) {
    const auto found = rows.find(one.grant_id);
    // No row of a grant has a smaller token than the grant.
    if (found == rows.end() || found->second < one.token.value()) return false;
    const auto before = known.find(one.grant_id);
    if (before == known.end() || found->second < before->second ||
        found->second > one.last_row_token()) {
        return false;
    }
    const auto upgrade = one.upgrade.load();
    return upgrade == grant_id{} || !known.contains(upgrade) || rows.contains(upgrade);
}

}  // namespace

void reconciler::begin(session& ours, sql::connection& db, sql::deadline until) {
    resolves_last_ = resolve_last_;
    if (!resolves_last_) resolve_unknown(ours, db, until);
}

void reconciler::finish(session& ours, sql::connection& db, sql::deadline until) {
    compare_if_wanted(ours, db, until);
    if (resolves_last_) resolve_unknown(ours, db, until);
}

bool reconciler::find_requests(session& ours, sql::connection& db, sql::deadline until) {
    // Rows that reclaim() has read, and has not made grants of, are not known here yet.
    const std::unique_lock reclaiming{reclaiming_, std::try_to_lock};
    if (!reclaiming) return false;
    const auto held = ours.grants().held();
    const auto known_tokens = tokens_of(held);
    const nanoseconds sent = context_.now();
    const auto rows = holds_of(ours, db, until);
    const nanoseconds read = context_.now();
    lose_missing(held, known_tokens, rows);
    bool all_known = true;
    for (const auto& found : rows) {
        const auto& row = found.row;
        if (!row.deadline_us) continue;
        const bool known = std::ranges::any_of(
            held, [&](const auto& each) { return each->grant_id == row.grant_id; });
        if (!known) {
            all_known = all_known && !ours.grants().knows(row.grant_id);
            continue;
        }
        const auto granted = ours.grants().find(row.grant_id);
        if (!granted) continue;
        if (row.forced) {
            static_cast<void>(grants_.deny(*granted));
            continue;
        }
        if (row.asked) {
            const std::chrono::microseconds left{*row.deadline_us};
            grants_.end_by(granted, *row.asked, sent, left - longest_clock_step,
                           is_requested(*granted, row, read));
            continue;
        }
        if (!row.requested || !is_requested(*granted, row, read)) {
            // Asked for at once, and its own deadline comes first. An extension that was committed
            // before may have made that later, and its answer come after this.
            const std::chrono::microseconds left{*row.deadline_us};
            if (row.requested) grants_.keep_deadline(granted, sent, left - longest_clock_step);
            continue;
        }
        if (!context_.lose_with_offers(*granted, loss_reason::release_requested)) continue;
        // A release that came in between has found the grant lost.
        if (granted->stopped) grants_.clear_row(*granted);
    }
    return all_known;
}

void reconciler::compare_if_wanted(session& ours, sql::connection& db, sql::deadline until) {
    constexpr int beats_between = 5;
    if (ours.grants().ever_unknown() && ++ours.beats_since_compared >= beats_between) want();
    if (!is_wanted()) compare_held(ours, db, until);
    if (!wanted_.exchange(false)) return;
    try {
        compare(ours, db, until);
        ours.beats_since_compared = 0;
        ours.beats_since_read = 0;
    } catch (...) {
        want();
        resolve_last_ = false;
        throw;
    }
}

/// A change by hand moves no revision. Every third heartbeat therefore reads the rows of the held
/// leases by name, and those of permits: one that its row no longer shows is detected within five.
/// It reads at most 3000 rows a second: less often with thousands of leases and a short heartbeat.
/// A row that seems not to be ours triggers the full comparison, which reads again.
void reconciler::compare_held(session& ours, sql::connection& db, sql::deadline until) {
    constexpr int beats_between = 3;
    constexpr auto time_of_a_row = std::chrono::microseconds{333};
    if (++ours.beats_since_read < beats_between || context_.now() < ours.next_read) return;
    const auto held = ours.grants().held();
    ours.beats_since_read = 0;
    const auto known = tokens_of(held);
    std::vector<protocol::hold_key> keys;
    keys.reserve(held.size());
    for (const auto& each : held) keys.push_back(each->key());
    row_tokens tokens;
    for (const auto& row : context_.holds.tokens_of(db, ours.id(), keys, until)) {
        tokens.emplace(row.grant_id, row.token);
    }
    ours.next_read = context_.now() + held.size() * time_of_a_row;
    for (const auto& each : held) {
        const auto now = each->now.load();
        const bool counts = now == grant::state::held || now == grant::state::offered;
        if (counts && !is_there(tokens, known, *each)) want();
    }
}

/// For a hold whose row is gone or has another token, perhaps set back by an operator: no later
/// grant may have a smaller token than ours.
void reconciler::raise_floor_past_lost(sql::connection& db, sql::deadline until) {
    while (!lost_.empty()) {
        const grant& lost = *lost_.back();
        const auto seen = context_.leases.probe(db, lost.name, lost.session_id, until);
        if (seen.token < lost.row_token) context_.sessions.lift_floor(db, lost.row_token, until);
        lost_.pop_back();
    }
}

/// A task that did not fit into its time is retried soon, with twice the time. Only where that time
/// is what limits the wait for a lock: on SQLite.
void reconciler::postpone() noexcept {
    if (context_.traits().limits_lock_waits) return;
    row_patience_ = std::min<nanoseconds>(2 * row_patience_, context_.options.statement_timeout);
    postponed_ = true;
}

/// Gives back rows of our session that have no grant here; declares lost the leases whose rows are
/// no longer ours.
void reconciler::compare(session& ours, sql::connection& db, sql::deadline until) {
    const std::unique_lock reclaiming{reclaiming_, std::try_to_lock};
    if (!reclaiming) return want();
    // Copied before the rows are read: a grant that is newer than the read is not judged by it.
    const auto held = ours.grants().held();
    const auto known = tokens_of(held);
    // Queue entries first: one that is served before it is cancelled then appears among the leases.
    cancel_orphans(ours, db, until);
    const auto rows = holds_of(ours, db, until);
    // First the work that needs no row of the table: the statements below may wait for a lock.
    lose_missing(held, known, rows);
    raise_floor_past_lost(db, until);
    for (const auto& each : rows) {
        if (db.discarded()) return want();  // it may have a transaction open
        const auto id = each.row.grant_id;
        if (is_known(ours, each)) {
            // The release of this grant may have been committed and answered, then lost in the
            // crash that caused this comparison, before its thread called forget(): compare once
            // more.
            if (is_ending(held, id)) want();
            continue;
        }
        // The upgrade of a hold whose end its holder may not know yet ends with that.
        if (ours.grants().is_unresolved(id) || ours.grants().is_unresolved(each.upgrades)) continue;
        try {
            release_orphan(ours, each, db, sql::row_lock_deadline(db, until, row_patience_));
        } catch (const error& failure) {
            if (!sql::is_locked(db, failure)) {
                tell_waiters(db, each.row.name, failure);
                throw;
            }
            postpone();
            want();
        }
    }
}

void reconciler::lose_missing(const std::vector<std::shared_ptr<grant>>& held,
                              const row_tokens& known,
                              const std::vector<protocol::session_hold>& rows) {
    row_tokens tokens;
    for (const auto& [row, part, upgrades] : rows) {
        if (!row.forced) tokens.emplace(row.grant_id, row.token);
    }
    for (const auto& granted : held) {
        if (is_there(tokens, known, *granted)) continue;
        if (grants_.taken_over(*granted) || grants_.deny(*granted)) lost_.push_back(granted);
    }
}

std::vector<protocol::session_hold> reconciler::holds_of(const session& ours, sql::connection& db,
                                                         sql::deadline until) const {
    return context_.holds.holds_of(
        db, ours.id(), [&] { return ours.expects_parts(); }, until);
}

/// The ledger first: it knows an upgrade until the hold does.
bool reconciler::is_known(const session& ours, const protocol::session_hold& hold) {
    if (ours.grants().knows(hold.row.grant_id)) return true;
    if (hold.upgrades == grant_id{}) return false;
    const auto upgraded = ours.grants().find(hold.upgrades);
    return upgraded && upgraded->upgrade == hold.row.grant_id;
}

/// Releases a row of our session whose grant id is unknown here.
void reconciler::release_orphan(session& ours, const protocol::session_hold& hold,
                                sql::connection& db, sql::deadline until) {
    const auto& name = hold.row.name;
    const auto done = context_.holds.release(db, hold.key(ours.id()), {.contended = true}, until);
    if (!done.freed) return;
    waiting_.after_release(db, name, done, until);
    context_.report({.kind = event_kind::resolved,
                     .name = name,
                     .token = fencing_token{hold.row.token},
                     .session = ours.id(),
                     .message = "a grant that no part of this client holds was released"});
}

/// Cancels queue entries without a waiter: created by a statement that ran late, or restored
/// because a crash lost the hand-over that had served them. An entry that merely ended between the
/// read and the check of what we know is not there to cancel.
void reconciler::cancel_orphans(session& ours, sql::connection& db, sql::deadline until) {
    for (const auto& each : context_.queues.entries_of(db, ours.id(), until).waiting) {
        cancel_orphan(ours, each.name, each.grant_id, db, until);
    }
}

void reconciler::cancel_orphan(session& ours, const std::string& name, grant_id grant_id,
                               sql::connection& db, sql::deadline until) {
    if (ours.grants().knows(grant_id) || ours.grants().is_unresolved(grant_id)) return;
    const std::array id{grant_id};
    const auto deleted =
        waiting_.look_if_unknown(name, [&] { return context_.queues.cancel(db, id, until); });
    if (deleted.empty()) return;
    waiting_.freed(name);
    context_.report({.kind = event_kind::resolved,
                     .name = name,
                     .session = ours.id(),
                     .message = "a queue entry without a waiter was cancelled"});
}

void reconciler::resolve_unknown(session& ours, sql::connection& db, sql::deadline until) {
    // A grant that reclaim() is taking over must not be released under it.
    const std::unique_lock reclaiming{reclaiming_, std::try_to_lock};
    if (!reclaiming) return;
    for (const auto& unknown : ours.grants().unresolved()) {
        if (db.discarded()) return;  // it may have a transaction open
        if (!ours.grants().is_unresolved(unknown.grant_id) || !unknown.is_due(context_.now()))
            continue;
        try {
            resolve(ours, unknown, db, sql::row_lock_deadline(db, until, row_patience_));
            row_patience_ = sql::brief;
        } catch (const error& failure) {
            if (!sql::is_locked(db, failure)) {
                ours.grants().postpone(unknown.grant_id);  // the others run first the next time
                resolve_last_ = true;
                tell_waiters(db, unknown.name, failure);
                throw;
            }
            postpone();
        }
    }
    resolve_last_ = false;
}

/// A release that failed may have been made: then nobody has looked at the queue since. One that
/// cannot be made (tables of another version, or a missing right) leaves the lock held while our
/// session lives: our own threads would wait for it indefinitely.
void reconciler::tell_waiters(const sql::connection& db, const std::string& name,
                              const error& why) {
    if (why.kind() == errc::outcome_unknown) return waiting_.perhaps_freed(name);
    if (why.kind() != errc::schema_outdated && why.kind() != errc::access_denied) return;
    if (db.alive()) waiting_.fail(why, name);
}

void reconciler::resolve(session& ours, const unresolved_grant& unknown, sql::connection& db,
                         sql::deadline until) {
    // Read before the release is sent: the release does not resolve a row created later.
    const nanoseconds sent = context_.now();
    // The queue entry first: once it is gone it cannot become a grant.
    const std::array<grant_id, 1> place{unknown.grant_id};
    const bool cancelled = unknown.queued && !context_.queues.cancel(db, place, until).empty();
    protocol::release_outcome done{false, {}};
    if (unknown.believed_upgrade) {
        done.part = true;
        done.freed = context_.semaphores.end_upgrade(db, unknown.name, unknown.grant_id,
                                                     std::nullopt, until);
    } else if (!cancelled) {
        done = context_.holds.release(db, unknown.key(ours.id()), {.contended = true}, until);
    }
    if (done.freed) waiting_.after_release(db, unknown.name, done, until);
    if (cancelled) waiting_.freed(unknown.name);
    if (!done.freed && !cancelled && sent <= unknown.not_after) return;
    ours.grants().resolved(unknown.grant_id);
    if (unknown.surely_ended) return;
    context_.report({.kind = event_kind::resolved,
                     .name = unknown.name,
                     .session = ours.id(),
                     .message = done.freed  ? "a grant whose reply was lost was released"
                                : cancelled ? "a queue entry without a waiter was cancelled"
                                            : "it resulted in no grant"});
}

}  // namespace rowlock::detail
