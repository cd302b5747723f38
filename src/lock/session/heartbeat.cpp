#include "lock/session/heartbeat.hpp"

#include "base/server_words.hpp"
#include "sql/brief_wait.hpp"
#include "sql/put_back.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <string>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using base::alarm;
using steady = std::chrono::steady_clock;

std::string in_milliseconds(nanoseconds time) {
    return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(time).count()) + " ms";
}

}  // namespace

base::worker::listener heartbeat::listener() {
    return {.open =
                [this, polled = std::shared_ptr<session>{}](std::span<pollfd> on) mutable {
                    polled = sessions_.current();
                    return polled ? listener_.open(*polled, on) : alarm::never;
                },
            .read =
                [this] {
                    const auto ours = sessions_.current();
                    return ours && listener_.read_wakeups(*ours);
                }};
}

/// Whether the connection broke, or is to be replaced.
bool heartbeat::is_stale() const noexcept {
    return db_ && (!db_->alive() || db_->discarded());
}

nanoseconds heartbeat::step() noexcept {
    const auto ours = sessions_.current();
    // Without a session no beat replaces it; and while it is open, the server may keep what it has
    // begun, and rows locked that our next session needs.
    if (!ours && is_stale()) drop_connection();
    if (context_.shares_connection() && db_ && !db_->alive()) drop_connection();
    try {
        if (ours) {
            const nanoseconds next =
                std::min({beat(*ours), sessions_.lost().next_due(context_.now()), also_.due()});
            listener_.read_wakeups(*ours);  // a statement may have read a notification
            if (is_stale()) return context_.now();
            return std::min(next, ours->news().news_at());
        }
        for (const auto id : end_lost_sessions(context_.statement_deadline())) {
            waiting_.session_ended(id);
        }
        if (also_.due() <= context_.now()) {
            const auto until = context_.statement_deadline();
            auto& db = connection(until);
            wait_briefly_for_rows(until);
            also_.run(db, until);
        }
        failures_ = 0;
        return std::min(sessions_.lost().next_due(context_.now()), also_.due());
    } catch (const std::exception& failure) {
        // No heartbeat can reach what others see, and they may have our locks already.
        if (ours && sql::was_put_back(failure)) {
            sessions_.lose(*ours, loss_reason::server_changed);
        }
        return ours ? after_failure(*ours, failure) : pause_after_failure();
    }
}

nanoseconds heartbeat::beat(session& ours) {
    if (!db_ && !is_due(ours, context_.now())) {
        const nanoseconds connect_at = context_.link.connect_at(ours.last_beat());
        if (context_.now() < connect_at) return connect_at;
    }
    // Opening may outlast the trust window: the second heartbeat extends it meanwhile.
    auto& db = connection(context_.statement_deadline());
    const auto until = deadline_for(ours);
    if (!is_due(ours, context_.now())) {
        listener_.listen(ours, db);
        return ours.last_beat() + context_.link.period();
    }
    const auto announced = ours.news().announced();
    switch (send(ours, db, until)) {
        case beaten::again:
            return context_.now();
        case beaten::later:
            return pause_after_failure();
        case beaten::confirmed:
            break;
    }
    ours.news().confirm(announced, context_.now());
    after_beat(ours, until);
    listener_.listen(ours, *db_);
    failures_ = 0;
    const nanoseconds next = ours.last_beat() + context_.link.period();
    return reconciler_.take_postponed() ? std::min<nanoseconds>(next, context_.now() + 500ms)
                                        : next;
}

/// The thread may be poked before the period ends: at the opening of a session, only to open the
/// connection; for work that needs a live session first; or for a notified change.
bool heartbeat::is_due(const session& ours, nanoseconds now) const {
    return now >= ours.last_beat() + context_.link.period() || reconciler_.is_wanted() ||
           sessions_.lost().next_due(now) <= now || ours.grants().unresolved_due(now) > 0 ||
           ours.news().news_at() <= now || also_.due() <= now;
}

/// The rest of the trust window: a late answer is worth more than the connection that a timeout
/// would break. The second heartbeat makes the second attempt in parallel.
sql::deadline heartbeat::deadline_for(const session& ours) const {
    const nanoseconds left = ours.trust()->until() - context_.now();
    return steady::now() + std::min<nanoseconds>(std::max<nanoseconds>(left, 50ms),
                                                 context_.options.statement_timeout);
}

heartbeat::beaten heartbeat::send(session& ours, sql::connection& db, sql::deadline until) {
    const nanoseconds sent = context_.now();
    if (!ours.trust()->open(sent)) {
        sessions_.lose(ours, loss_reason::trust_window_passed);
        return beaten::again;
    }
    if (!context_.sessions.heartbeat(db, ours.id(), ours.news().revision, until)) {
        return after_refusal(ours, db, until);
    }
    const nanoseconds answered = context_.now();
    if (!ours.trust()->extend(sent + context_.options.ttl - context_.options.margin, answered)) {
        sessions_.lose(ours, loss_reason::trust_window_passed);
        return beaten::again;
    }
    context_.link.note_round_trip(answered - sent);
    context_.count(counter::heartbeats);
    if (sent - ours.last_beat() > context_.options.heartbeat * 3 / 2) {
        context_.report({.kind = event_kind::heartbeat_late, .session = ours.id()});
    }
    ours.beaten(sent);
    return beaten::confirmed;
}

/// The session is over, or another client has taken one of our leases or requests one. We adopt the
/// revision once every request is known: until then no heartbeat extends the trust in a requested
/// lease.
heartbeat::beaten heartbeat::after_refusal(session& ours, sql::connection& db,
                                           sql::deadline until) {
    ++ours.news().looks;
    const auto state = context_.sessions.state_of(db, ours.id(), until);
    if (!state.live) {
        sessions_.lose(ours, sessions_.why_over(ours, db, until));
        return beaten::again;
    }
    if (!reconciler_.find_requests(ours, db, until)) {
        waiting_.poll_soon();
        return beaten::later;
    }
    ++ours.news().looks;  // also for those that began to wait since
    ours.news().revision = state.revision;
    reconciler_.want();
    return beaten::again;
}

/// A row locked by a fenced transaction must not delay all the other tasks.
void heartbeat::wait_briefly_for_rows(sql::deadline until) {
    if (has_short_timeout_) return;
    sql::set_short_lock_timeout(*db_, until);
    has_short_timeout_ = true;
}

void heartbeat::after_beat(session& ours, sql::deadline until) {
    const nanoseconds now = context_.now();
    const bool chores = also_.due() <= now;
    const bool works = reconciler_.is_wanted() || ours.grants().unresolved_due(now) > 0 || chores;
    if (works) wait_briefly_for_rows(until);
    reconciler_.begin(ours, *db_, until);
    // This may open another connection.
    for (const auto id : end_lost_sessions(until)) waiting_.session_ended(id);
    // A failure that was passed over may have left a transaction open.
    if (is_stale()) connection(until);
    reconciler_.finish(ours, *db_, until);
    if (chores && !is_stale()) also_.run(*db_, until);
}

std::vector<session_id> heartbeat::end_lost_sessions(sql::deadline until) {
    std::vector<session_id> ended;
    while (const auto id = sessions_.lost().due(context_.now())) {
        ended.reserve(ended.size() + 1);
        context_.sessions.end(connection(until), *id, until);
        ended.push_back(*id);
        sessions_.lost().ended(*id);
    }
    return ended;
}

void heartbeat::drop_connection() noexcept {
    db_.reset();
    connected_ = false;
    connections_.let_go_of_shared();
}

sql::connection& heartbeat::connection(sql::deadline until) {
    if (is_stale() || (db_ && sessions_.leads_elsewhere(*db_))) drop_connection();
    if (db_) return *db_;
    const auto began = steady::now();
    db_ = connections_.make(until, client_connections::rank::first);
    warn_of_short_ttl(steady::now() - began);
    has_short_timeout_ = false;
    connected_ = true;
    note_connected();
    return *db_;
}

void heartbeat::note_connected() noexcept {
    if (was_connected_) {
        context_.count(counter::reconnects);
        context_.report({.kind = event_kind::reconnected});
        reconciler_.want();
    } else if (context_.counted(counter::released) > 0) {
        // A crash since the session was opened may have undone a release that did not wait for the
        // disk, and no connection is left that noticed the crash.
        reconciler_.want();
    }
    was_connected_ = true;
}

void heartbeat::adopt_idle_connection() {
    if (!db_ && !was_connected_) db_ = connections_.remove_idle();
}

nanoseconds heartbeat::after_failure(session& ours, const std::exception& failure) noexcept {
    // The server has left its cluster or accepts no writes: our other connections lead there.
    if (db_ && db_->discarded()) connections_.renew();
    report_failure(ours, failure);
    return pause_after_failure();
}

void heartbeat::report_failure(const session& ours, const std::exception& failure) noexcept {
    context_.count(counter::heartbeat_failures);
    context_.report([&] {
        return event{.kind = event_kind::heartbeat_failed,
                     .session = ours.id(),
                     .message = base::with_server_words(failure)};
    });
}

nanoseconds heartbeat::pause_after_failure() noexcept {
    return context_.now() + context_.link.pause_after(failures_++);
}

/// A lease survives a broken connection if a new one can be opened, and used, within the trust
/// window.
void heartbeat::warn_of_short_ttl(nanoseconds opening) noexcept {
    if (warned_of_ttl_ || !context_.traits().has_server) return;
    const auto wanted = context_.link.wanted_ttl(opening);
    if (!wanted) return;
    warned_of_ttl_ = true;
    context_.report([&] {
        return event{.kind = event_kind::ttl_short,
                     .session = {},
                     .message = "opening a connection took " + in_milliseconds(opening) +
                                ", a round trip takes " +
                                in_milliseconds(context_.link.round_trip()) +
                                ": raise the ttl to " + in_milliseconds(*wanted) + " or more"};
    });
}

}  // namespace rowlock::detail
