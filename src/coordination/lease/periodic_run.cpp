#include "base/require.hpp"
#include "base/utf8.hpp"
#include "coordination/lease/engine.hpp"
#include "coordination/session/grant.hpp"
#include <rowlock/error.hpp>
#include <rowlock/periodic_run.hpp>
#include <rowlock/timeout.hpp>

#include <algorithm>

namespace rowlock {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;
using outcome = protocol::run_answer::outcome;
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

periodic_outcome told(outcome what) {
    switch (what) {
        case outcome::done:
            return periodic_outcome::done;
        case outcome::recent:
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

/// The lease is free during a rest: who waits for the end of it does not stand in its queue.
periodic_attempt periodic_run::begin(client& locks, const lock_name& name,
                                     const periodic_options& options, const std::stop_token& stop) {
    validate(options);
    const auto until = options.wait ? detail::after(*options.wait) : steady::time_point::max();
    const auto alive = locks.engine_;
    for (;;) {
        auto held = locks.acquire_until(name, until, stop, options.lease);
        if (!held) return {.outcome = periodic_outcome::busy};
        const auto answer = alive->runs().begin(*held->grant_, options.period, options);
        if (answer.what == outcome::begun) {
            return {.outcome = periodic_outcome::begun,
                    .run = periodic_run{*std::move(held), options.period}};
        }
        held->release();
        if (answer.what == outcome::not_held) continue;  // release() has thrown, or it was broken
        const auto rest = std::chrono::ceil<milliseconds>(answer.rest);
        const auto now = steady::now();
        if (answer.what != outcome::resting || now + rest >= until) {
            return {.outcome = told(answer.what), .rest = rest};
        }
        if (!alive->runs().pause(rest, stop))
            return {.outcome = periodic_outcome::resting, .rest = rest};
    }
}

void periodic_run::finish() {
    if (!lease_.grant_) throw error{errc::not_owner, "this run was moved from, or is over"};
    const auto engine = lease_.grant_->owner.lock();
    if (!engine) throw detail::client_destroyed();
    if (!engine->runs().finish(*lease_.grant_, period_)) {
        throw error{errc::lock_lost,
                    "another run began before this one finished: the work of both "
                    "may have overlapped"};
    }
    lease_.release();
}

}  // namespace rowlock
