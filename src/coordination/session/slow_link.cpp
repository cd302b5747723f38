// Heartbeats over a slow or lossy link: how often they are sent, and the second heartbeat thread,
// which sends one on another connection while the first is late.

#include "coordination/lease/engine.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <string>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using base::alarm;
using std::chrono::milliseconds;
using steady = std::chrono::steady_clock;

std::string in_milliseconds(nanoseconds time) {
    return std::to_string(std::chrono::ceil<milliseconds>(time).count()) + " ms";
}

}  // namespace

/// Keeps the shortest recent round trip: a retransmitted answer says nothing about the next one.
void engine::note_round_trip(nanoseconds took) noexcept {
    const auto before = round_trip_.load();
    const auto rising = before + before / 8;
    round_trip_ = before == 0 ? took.count() : std::min(took.count(), rising);
}

/// Halves the configured period if a round trip takes more than a tenth of it: after a lost packet,
/// which is resent after one or two round trips, there is still time for another heartbeat.
nanoseconds engine::beat_period() const noexcept {
    const nanoseconds wanted = options_.heartbeat;
    return round_trip() > wanted / 10 ? wanted / 2 : wanted;
}

/// When the second heartbeat is due: after the answer to the first should have come. While the
/// first has no connection, at most 50 ms after a heartbeat is due.
nanoseconds engine::late_at(const session& ours) const noexcept {
    const nanoseconds wanted = options_.heartbeat;
    const nanoseconds patience = heartbeat_connected_ ? std::max(wanted / 4, round_trip() * 3 / 2)
                                                      : std::min<nanoseconds>(wanted / 8, 50ms);
    const nanoseconds period = beat_period();
    const nanoseconds window = options_.ttl - options_.margin;
    return ours.last_beat() + period + std::min(patience, (window - period) / 2);
}

/// Called by the watchdog. Returns when to call again. SQLite has no link: a second connection
/// would wait for the file behind the first.
nanoseconds engine::start_second_heartbeat(const session& ours, nanoseconds now) noexcept {
    if (source_.speaks() == sql::dialect::sqlite) return alarm::never;
    {
        const std::lock_guard lock{state_mutex_};
        if (second_heartbeat_ || closing_) return alarm::never;
    }
    const nanoseconds late = late_at(ours);
    if (now < late) return late;
    try {
        auto made = std::make_unique<base::worker>(clock_, [this] { return beat_late(); });
        const std::lock_guard lock{state_mutex_};
        if (!closing_) second_heartbeat_ = std::move(made);
        return alarm::never;
    } catch (const std::exception&) {
        return now + options_.heartbeat / 4;  // no thread available now
    }
}

/// One step of the second heartbeat; returns when the next is due.
nanoseconds engine::beat_late() noexcept {
    constexpr nanoseconds moment = 10ms;  // almost at once, without a busy loop
    const nanoseconds often = std::max<nanoseconds>(moment, options_.heartbeat / 16);
    const auto ours = current();
    if (!ours) return alarm::never;
    const nanoseconds late = late_at(*ours);
    if (clock_.now() < late) return late;
    try {
        switch (beat_elsewhere(*ours)) {
            case beaten::again:
                return clock_.now() + moment;
            case beaten::later:
                return clock_.now() + often;
            case beaten::confirmed:
                break;
        }
        if (compare_wanted_) poke_heartbeat();
        return late_at(*ours);
    } catch (const std::exception& failure) {
        count(counter::heartbeat_failures);
        try {
            events_.post({.kind = event_kind::heartbeat_failed,
                          .session = ours->id(),
                          .message = failure.what()});
        } catch (...) {
            // No memory for the message.
        }
        return clock_.now() + often;
    }
}

/// Uses an idle connection of the pool. If none becomes idle for a while, opens a new one, which
/// the pool keeps. Returns `again` also if no connection was available.
engine::beaten engine::beat_elsewhere(session& ours) {
    const nanoseconds left = ours.trust()->until() - clock_.now();
    const auto now = steady::now();
    const auto end =
        now + std::min<nanoseconds>(std::max<nanoseconds>(left, 50ms), options_.statement_timeout);
    // An idle connection may be dead: leave time for a new one.
    const auto patient = now + std::max(left / 2, 8 * round_trip());
    if (shares()) {
        // A stalled statement blocks the shared connection. Statements that finish do not: behind
        // many of them this heartbeat has the next turn.
        const nanoseconds stalls = std::max<nanoseconds>(8 * round_trip(), 50ms);
        const nanoseconds busy = shared_.busy_for();
        const bool stalled = busy > 0ns && busy >= std::min(stalls, left / 8);
        if (stalled) {
            if (10 * round_trip() > left) return beaten::again;
            renew_connections();
        } else if (busy > 0ns) {
            if (no_idle_since_ == 0ns) no_idle_since_ = clock_.now();
            if (clock_.now() - no_idle_since_ < options_.heartbeat / 8) return beaten::again;
        }
        no_idle_since_ = 0ns;
        const auto db = make_connection(end, rank::first);
        return send_beat(ours, *db, stalled ? end : std::min<sql::deadline>(end, patient));
    }
    if (const auto idle = pool_.take_idle()) {
        no_idle_since_ = 0ns;
        if (leads_elsewhere(**idle)) {
            (*idle)->discard();
            return beaten::again;
        }
        return send_beat(ours, **idle, std::min<sql::deadline>(end, patient));
    }
    if (no_idle_since_ == 0ns) no_idle_since_ = clock_.now();
    if (clock_.now() - no_idle_since_ < options_.heartbeat / 8) return beaten::again;
    // If a new connection could not be open in time, one in use may still become idle.
    if (10 * round_trip() > left) return beaten::again;
    no_idle_since_ = 0ns;
    // Beyond the budget: an exhausted pool must not cost a lease.
    const auto made = pool_.take(budget_ + 2, end, end);
    return send_beat(ours, *made, end);
}

/// Sends a heartbeat on the connection of a call, whose statements may be what delays the second
/// heartbeat.
void engine::beat_if_late(session& ours, sql::connection& db, sql::deadline until) {
    if (source_.speaks() == sql::dialect::sqlite || clock_.now() < late_at(ours)) return;
    static_cast<void>(send_beat(ours, db, until));
}

/// Called after the heartbeat's own connection was opened. A lease survives a broken connection if
/// a new one can be opened, and used, within the trust window.
void engine::warn_of_short_ttl(nanoseconds opening) noexcept {
    if (warned_of_ttl_ || source_.speaks() == sql::dialect::sqlite) return;
    const nanoseconds available = options_.ttl - options_.margin - beat_period();
    const nanoseconds needed = opening + 2 * round_trip();
    const bool enough = needed <= available && 10 * round_trip() <= nanoseconds{options_.ttl};
    if (enough) return;
    warned_of_ttl_ = true;
    try {
        const auto factor =
            static_cast<double>(needed.count()) / static_cast<double>(available.count());
        const nanoseconds wanted = std::max<nanoseconds>(
            10 * round_trip(), std::chrono::ceil<milliseconds>(options_.ttl * factor));
        events_.post({.kind = event_kind::ttl_short,
                      .session = 0,
                      .message = "opening a connection took " + in_milliseconds(opening) +
                                 ", a round trip takes " + in_milliseconds(round_trip()) +
                                 ": raise the ttl to " + in_milliseconds(wanted) + " or more"});
    } catch (...) {
        // No memory for the message.
    }
}

}  // namespace rowlock::detail
