#pragma once

#include "lock/queue/grant_verifier.hpp"
#include "lock/queue/loop_connection.hpp"
#include "lock/queue/loop_parts.hpp"
#include <rowlock/ids.hpp>

#include <atomic>
#include <functional>
#include <string>

namespace rowlock::detail {

/// Serves the heads of queues, of this client's entries and of others'. Used by the loop's thread.
class queue_server {
public:
    queue_server(const loop_parts& parts, loop_connection& link) : parts_{parts}, link_{link} {}

    /// Finds the queues that sessions which have ended leave to be served, and sweeps their counted
    /// holds: one round trip each, and one or two for each name with such holds.
    void find_queues_of_ended_sessions();
    /// Checks released locks for waiters: one round trip for each 16.
    void check_for_waiters();
    /// Serves the queues that are due: one round trip each, two if another waiter than expected is
    /// the first, one or two more to wake each.
    /// @param between called after each
    /// @param stopping when true, the rest is left
    void serve_due(const std::function<void()>& between, const std::atomic<bool>& stopping);

private:
    void sweep(const std::string& name);

    const loop_parts& parts_;
    loop_connection& link_;
};

}  // namespace rowlock::detail
