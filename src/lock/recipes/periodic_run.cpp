#include "base/require.hpp"
#include "base/utf8.hpp"
#include "lock/recipes/periodic_runs.hpp"
#include "lock/session/grant.hpp"
#include <rowlock/error.hpp>
#include <rowlock/periodic_run.hpp>
#include <rowlock/timeout.hpp>

#include <algorithm>

namespace rowlock {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;
using run_outcome = protocol::run_answer::outcome;
using std::chrono::milliseconds;

void validate(const periodic_options& options) {
    const auto is_time = [](milliseconds time) { return time >= 0ms && time <= 24h * 366; };
    require(utf8::is_text(options.period, 255),
            "a period must be UTF-8 of at most 255 bytes without NUL");
    require(is_time(options.at_least), "at_least must be from 0 to 366 days");
    require(is_time(options.lock_delay), "lock_delay must be from 0 to 366 days");
    require(!options.skip_if_within ||
                (*options.skip_if_within > 0ms && is_time(*options.skip_if_within)),
            "skip_if_within must be more than 0 and at most 366 days");
}

periodic_outcome told(run_outcome what) {
    switch (what) {
        case run_outcome::done:
            return periodic_outcome::done;
        case run_outcome::recent:
            return periodic_outcome::recent;
        default:
            return periodic_outcome::resting;
    }
}

}  // namespace

const char* to_string(periodic_outcome outcome) noexcept {
    switch (outcome) {
        case periodic_outcome::begun:
            return "begun";
        case periodic_outcome::busy:
            return "busy";
        case periodic_outcome::resting:
            return "resting";
        case periodic_outcome::recent:
            return "recent";
        case periodic_outcome::done:
            return "done";
    }
    return "unknown";
}

/// The lease is free during a rest: a wait for its end is no place in the queue. It looks again
/// after a minute at most: the record may have been changed by hand, or the server's clock.
periodic_attempt periodic_run::begin(client& locks, const lock_name& name,
                                     const periodic_options& options, const std::stop_token& stop) {
    validate(options);
    constexpr milliseconds longest_sleep = 1min;
    const auto until = options.wait ? detail::after(*options.wait) : steady::time_point::max();
    const auto alive = locks.engine_;  // until the call learns of the client's destruction
    for (;;) {
        auto granted = alive->acquires().acquire(name, until, stop, options.lease, {}, {}, 0, true);
        if (!granted) return {.outcome = periodic_outcome::busy};
        rowlock::lease held{std::move(granted)};
        const auto answer = alive->part<detail::periodic_runs>().begin(*held.grant_, options.period,
                                                                       options, until, stop);
        if (!answer) return {.outcome = periodic_outcome::busy};  // a stop was requested
        if (answer->what == run_outcome::begun) {
            held.grant_->withheld = false;
            if (!held.held()) held.release();  // throws: it was lost
            return {.outcome = periodic_outcome::begun,
                    .run = periodic_run{std::move(held), options.period}};
        }
        if (answer->what == run_outcome::not_held) {
            held.release();  // throws: it was lost
            continue;
        }
        held = {};
        const auto rest = std::chrono::ceil<milliseconds>(answer->rest);
        if (answer->what != run_outcome::resting || steady::now() + rest >= until) {
            return {.outcome = told(answer->what), .rest = rest};
        }
        if (!alive->part<detail::periodic_runs>().pause(std::min(rest, longest_sleep), stop)) {
            return {.outcome = periodic_outcome::resting, .rest = rest};
        }
    }
}

std::optional<run_info> periodic_run::inspect(client& locks, const lock_name& name) {
    locks.engine_->context().fork.require_same_process();
    return locks.engine_->part<detail::periodic_runs>().inspect(name.str());
}

void periodic_run::finish() {
    const auto held = lease_.grant_;
    if (!held) throw error{errc::not_owner, "this run was moved from"};
    held->fork.require_same_process();
    const auto engine = held->owner.lock();
    if (!engine) throw detail::client_destroyed();
    if (!lease_.held()) {
        const bool lost =
            held->now == detail::grant::state::held || held->now == detail::grant::state::lost;
        if (lost) throw detail::lost_error(*held);
        throw error{errc::not_owner, "this run is over"};
    }
    // The table knows of a forced release before this client does.
    if (!engine->part<detail::periodic_runs>().finish(*held, period_))
        engine->releases().refuse(*held);
    // It has finished, whatever becomes of the lease.
    engine->releases().release_quietly(*held);
}

}  // namespace rowlock
