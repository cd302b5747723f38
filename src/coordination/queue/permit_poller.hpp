#pragma once

#include "coordination/queue/grant_verifier.hpp"
#include "coordination/queue/loop_connection.hpp"
#include "coordination/queue/loop_parts.hpp"
#include <rowlock/ids.hpp>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace rowlock::detail {

/// Polls the entries of this client in the queues of semaphores: finds permits that are free,
/// holders that are dead or past their deadline, entries that were served, and entries for which no
/// thread waits. Used by the loop's thread.
class permit_poller {
public:
    permit_poller(const loop_parts& parts, loop_connection& link, grant_verifier& verifier)
        : parts_{parts}, link_{link}, verifier_{verifier} {}

    /// One round trip for all entries, one for each semaphore that is full, and some for what it
    /// finds.
    /// @param queued the waiters of `ours`; not empty
    /// @param began when the poll began that this belongs to
    /// @param found learns what was found
    /// @return false if our session is not live any more
    [[nodiscard]] bool poll(session& ours, const std::vector<std::shared_ptr<waiter>>& queued,
                            nanoseconds began, poll_result& found);

private:
    using entries_by_id = std::unordered_map<grant_id, const protocol::permit_entry*>;

    void observe(waiter& which, std::int64_t position, nanoseconds began, poll_result& found);
    void observe_several(waiter& which, const entries_by_id& entries, nanoseconds began,
                         poll_result& found);
    void act_on(const protocol::permit_entry& entry, session& ours);
    void make_counter_anew(const protocol::permit_entry& entry);
    void look_at_holders(const std::string& name, nanoseconds began, poll_result& found);
    void ask_after(session& ours, waiter& missing);

    const loop_parts& parts_;
    loop_connection& link_;
    grant_verifier& verifier_;
    std::unordered_set<grant_id> strays_{};  ///< of the latest poll
    std::unordered_set<grant_id> strays_before_{};
    std::set<std::string> full_{};  ///< semaphores of the latest poll that can serve no waiter
};

}  // namespace rowlock::detail
