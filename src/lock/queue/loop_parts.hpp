#pragma once

#include "base/clock.hpp"
#include "lock/queue/contended_names.hpp"
#include "lock/queue/poll_pacing.hpp"
#include "lock/queue/waiter_registry.hpp"
#include "lock/queue/waiter_tasks.hpp"
#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/session_keeper.hpp"
#include "lock/session/session_registry.hpp"
#include "lock/session/waiters.hpp"

namespace rowlock::detail {

/// What the parts of the waiters' loop share. All of it outlives them.
struct loop_parts {
    client_context& context;
    session_registry& sessions;
    client_connections& connections;
    grant_lifecycle& grants;
    session_keeper& keeper;
    contended_names& contended;
    waiters& owner;
    waiter_registry& registry;
    waiter_tasks& tasks;
    poll_pacing& pacing;
    /// When the loop does what: the real clock, also where a test replaced the client's, unless a
    /// test moves this one.
    const base::clock& clock;

    [[nodiscard]] const protocol::queue_protocol& queues() const noexcept { return context.queues; }
    [[nodiscard]] nanoseconds now() const noexcept { return clock.now(); }
};

/// A hand-over wakes a dozen threads and server processes. Work that can wait lets them run first:
/// the first poll of an entry whose lease was just handed to another waiter, and the verification
/// of a grant.
constexpr nanoseconds rush = std::chrono::microseconds{300};
/// No first poll comes later: where the database names each grant.
constexpr nanoseconds latest_first_poll = std::chrono::milliseconds{250};

/// Reports that a thread waits, at this position (0: not known yet).
void report_position(client_context& context, const waiter& which, std::int64_t position);

}  // namespace rowlock::detail
