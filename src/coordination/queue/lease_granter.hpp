#pragma once

#include "coordination/queue/grant_verifier.hpp"
#include "coordination/queue/loop_connection.hpp"
#include "coordination/queue/loop_parts.hpp"
#include <rowlock/ids.hpp>

#include <atomic>
#include <functional>
#include <string>

namespace rowlock::detail {

/// Grants leases and permits that are free, or may be, to their next waiters, of this client or of
/// another. Used by the loop's thread.
class lease_granter {
public:
    lease_granter(const loop_parts& parts, loop_connection& link, grant_verifier& verifier)
        : parts_{parts}, link_{link}, verifier_{verifier} {}

    /// Finds the queues that sessions which have ended leave to be served: one round trip each.
    void find_queues_of_ended_sessions();
    /// Checks released leases for waiters: one round trip for each 16.
    void check_for_waiters();
    /// Grants the leases that are due: one round trip each, one or two more to wake the waiter.
    /// @param between called after each
    /// @param stopping when true, the rest is left
    void serve_due(const std::function<void()>& between, const std::atomic<bool>& stopping);

    /// Takes back the permits of sessions that have ended: one round trip each, and one or two for
    /// each semaphore.
    void take_back_permits_of_ended_sessions();
    /// Grants the permits that are due (waiters::serve_permits).
    /// @param between, stopping as above
    void serve_permits_due(const std::function<void()>& between, const std::atomic<bool>& stopping);

private:
    template <typename Serve, typename Retry>
    void serve_all(waiter_tasks::due_names names, const std::function<void()>& between,
                   const std::atomic<bool>& stopping, Serve serve, Retry retry);
    void take_back_permits(session_id ended);
    void serve_next(const std::string& name, sql::deadline until);

    const loop_parts& parts_;
    loop_connection& link_;
    grant_verifier& verifier_;
};

}  // namespace rowlock::detail
