#pragma once

#include "lock/queue/loop_connection.hpp"
#include "lock/queue/loop_parts.hpp"

#include <memory>
#include <vector>

namespace rowlock::detail {

/// Ends the waits of this client that close a deadlock cycle. Used by the loop's thread.
///
/// The tables are a little behind: an entry that was given up is still there, or a grant that came
/// to it, while its thread goes on and waits elsewhere. Two of those feign a cycle. A true cycle
/// persists until a member gives way, so it is checked twice.
class deadlock_breaker {
public:
    deadlock_breaker(const loop_parts& parts, loop_connection& link) : parts_{parts}, link_{link} {}

    /// One or two round trips if a thread holds something while it waits, and one for each cycle.
    /// @param queued the waiters of `ours`
    /// @param began when the poll began that this belongs to
    /// @param found learns when to check again
    void check(session& ours, const std::vector<std::shared_ptr<waiter>>& queued, nanoseconds began,
               poll_result& found);

private:
    [[nodiscard]] static bool blocks(const waiter& which, const session& ours);
    void give_way(const protocol::deadlock_found& cycle, const std::shared_ptr<waiter>& which,
                  session& ours, nanoseconds began, poll_result& found);

    const loop_parts& parts_;
    loop_connection& link_;
};

}  // namespace rowlock::detail
