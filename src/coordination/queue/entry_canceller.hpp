#pragma once

#include "coordination/queue/loop_connection.hpp"
#include "coordination/queue/loop_parts.hpp"
#include <rowlock/ids.hpp>

#include <memory>
#include <string>

namespace rowlock::detail {

/// Deletes the entries of waiters that gave up, and gives back grants that no thread wants any
/// more. Used by the loop's thread.
class entry_canceller {
public:
    entry_canceller(const loop_parts& parts, loop_connection& link) : parts_{parts}, link_{link} {}

    /// One round trip for all, and one for each entry that is gone.
    void cancel_given_up();
    /// Hands unwanted grants to their next waiters: one round trip each, or two.
    void give_back_unwanted();

private:
    void answer(const std::shared_ptr<waiter>& which, bool deleted);
    bool hand_over(const std::string& name, session_id session, grant_id grant_id);

    const loop_parts& parts_;
    loop_connection& link_;
};

}  // namespace rowlock::detail
