#include "lock/session/late_heartbeat.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <chrono>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using base::alarm;
using steady = std::chrono::steady_clock;
using beaten = heartbeat::beaten;

}  // namespace

nanoseconds late_heartbeat::step() noexcept {
    constexpr nanoseconds moment = 10ms;  // almost at once, without a busy loop
    const nanoseconds often = std::max<nanoseconds>(moment, context_.options.heartbeat / 16);
    const auto ours = sessions_.current();
    if (!ours) return alarm::never;
    const nanoseconds late = first_.late_at(*ours);
    if (context_.now() < late) return late;
    try {
        switch (beat(*ours)) {
            case beaten::again:
                return context_.now() + moment;
            case beaten::later:
                return context_.now() + often;
            case beaten::confirmed:
                break;
        }
        if (reconciler_.is_wanted()) on_doubt_();
        return first_.late_at(*ours);
    } catch (const std::exception& failure) {
        first_.report_failure(*ours, failure);
        return context_.now() + often;
    }
}

/// Uses an idle connection of the pool. If none becomes idle for a while, opens a new one for this
/// heartbeat. Returns `again` also if no connection was available.
beaten late_heartbeat::beat(session& ours) {
    const nanoseconds round_trip = context_.link.round_trip();
    const nanoseconds left = ours.trust()->until() - context_.now();
    const auto now = steady::now();
    const auto end = now + std::min<nanoseconds>(std::max<nanoseconds>(left, 50ms),
                                                 context_.options.statement_timeout);
    // An idle connection may be dead: leave time for a new one.
    const auto patient = std::min<sql::deadline>(end, now + std::max(left / 2, 8 * round_trip));
    if (context_.shares_connection()) return beat_on_shared(ours, left, patient, end);
    if (const auto idle = connections_.take_idle()) {
        no_idle_since_ = 0ns;
        if (sessions_.leads_elsewhere(**idle)) {
            (*idle)->discard();
            return beaten::again;
        }
        return first_.send(ours, **idle, patient);
    }
    if (!none_idle_for_long()) return beaten::again;
    // If a new connection could not be open in time, one in use may still become idle.
    if (10 * round_trip > left) return beaten::again;
    no_idle_since_ = 0ns;
    // An exhausted pool must not cost a lease, nor may calls use up what heartbeats may connect.
    const auto made = connections_.make(end, client_connections::rank::first);
    return first_.send(ours, *made, end);
}

/// A stalled statement blocks the shared connection. Statements that finish do not: behind many of
/// them this heartbeat has the next turn.
beaten late_heartbeat::beat_on_shared(session& ours, nanoseconds left, sql::deadline patient,
                                      sql::deadline end) {
    const nanoseconds round_trip = context_.link.round_trip();
    const nanoseconds stalls = std::max<nanoseconds>(8 * round_trip, 50ms);
    const nanoseconds busy = connections_.busy_for();
    const bool stalled = busy > 0ns && busy >= std::min(stalls, left / 8);
    if (stalled) {
        if (10 * round_trip > left) return beaten::again;
        connections_.renew();
    } else if (busy > 0ns && !none_idle_for_long()) {
        return beaten::again;
    }
    no_idle_since_ = 0ns;
    const auto db = connections_.make(end, client_connections::rank::first);
    return first_.send(ours, *db, stalled ? end : patient);
}

bool late_heartbeat::none_idle_for_long() {
    if (no_idle_since_ == 0ns) no_idle_since_ = context_.now();
    return context_.now() - no_idle_since_ >= context_.options.heartbeat / 8;
}

}  // namespace rowlock::detail
