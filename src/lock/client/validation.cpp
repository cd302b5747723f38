#include "lock/client/validation.hpp"

#include "base/require.hpp"
#include "base/retry_policy.hpp"
#include "base/utf8.hpp"
#include "lock/client/reap_round.hpp"
#include <rowlock/error.hpp>

#include <errno.h>

#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

}  // namespace

client_options validated(client_options options) {
    require(options.ttl >= 100ms && options.ttl <= 24h, "ttl must be from 100 ms to 1 day");
    require(options.heartbeat >= 0ms && options.margin >= 0ms,
            "heartbeat and margin may not be negative; 0 means ttl/3 and ttl/6");
    if (options.heartbeat == 0ms) options.heartbeat = options.ttl / 3;
    if (options.margin == 0ms) options.margin = options.ttl / 6;
    require(options.heartbeat < options.ttl && options.margin < options.ttl - options.heartbeat,
            "heartbeat + margin must be less than ttl");
    require(options.poll_interval > 0ms && options.poll_interval <= 24h,
            "poll_interval must be positive and at most one day");
    require(options.wake_ups <= wakeup_mode::polling,
            "wake_ups must be automatic, database or polling");
    require(options.deadlock_detection <= deadlock_detection::by_client,
            "deadlock_detection must be off, by_thread or by_client");
    require(options.when_cut_off <= when_cut_off::requeue, "when_cut_off must be fail or requeue");
    require(options.statement_timeout > 0ms && options.statement_timeout <= 1min,
            "statement_timeout must be positive and at most one minute");
    require(options.max_connections >= 1 && options.max_connections <= 1000,
            "max_connections must be from 1 to 1000");
    require(utf8::is_text(options.owner, 255),
            "owner must be UTF-8 of at most 255 bytes without NUL");
    require(utf8::is_text(options.program, 255),
            "program must be UTF-8 of at most 255 bytes without NUL");
    require(!options.owner.starts_with(random_owner), "an owner may not begin with `random:`");
    options.retry = base::validated(std::move(options.retry));
    if (options.program.empty()) options.program = program_invocation_short_name;
    if (options.reaper) {
        options.reaper->statement_timeout = options.statement_timeout;
        detail::validate(*options.reaper);
    }
    return options;
}

void validate(const acquire_options& options) {
    require(utf8::is_text(options.note, 1000),
            "a note must be UTF-8 of at most 1000 bytes without NUL");
    require(options.queueing <= queueing::barging, "queueing must be fair or barging");
    const auto& spin = options.spin;
    require(spin.first >= 1ms && spin.first <= 24h,
            "the first pause of a spinning caller must be from 1 ms to one day");
    require(spin.longest == 0ms || (spin.longest >= spin.first && spin.longest <= 24h),
            "the longest pause of a spinning caller must be 0, or from the first to one day");
    require(!options.max_duration || *options.max_duration >= 10ms,
            "a lease's max_duration must be at least 10 ms");
    require(!options.max_duration || *options.max_duration <= 24h * 366,
            "a lease's max_duration must be at most a year");
}

void validate(const request_options& options) {
    require(options.within >= 0ms && options.within <= 24h * 366,
            "the time for a release must be from 0 to 366 days");
    require(utf8::is_text(options.reason, 1000),
            "a reason must be UTF-8 of at most 1000 bytes without NUL");
}

void validate_max_hold(std::optional<std::chrono::milliseconds> limit) {
    require(!limit || (*limit >= 10ms && *limit <= 24h * 366),
            "max_hold must be from 10 ms to 366 days");
}

}  // namespace rowlock::detail
