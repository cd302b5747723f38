#pragma once

#include "lock/queue/grant_verifier.hpp"
#include "lock/queue/loop_connection.hpp"
#include "lock/queue/loop_parts.hpp"
#include "lock/queue/task_list.hpp"
#include <rowlock/ids.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rowlock::detail {

/// Deletes the entries of waiters that gave up, and gives back grants that no thread wants any
/// more. Used by the loop's thread.
class entry_canceller {
public:
    entry_canceller(const loop_parts& parts, loop_connection& link, grant_verifier& verifier)
        : parts_{parts}, link_{link}, verifier_{verifier} {}

    /// One round trip for all, and one for each entry that is gone. If one is locked, they are
    /// tried again after a pause, one by one.
    void cancel_given_up();
    /// When that is; never if there is none.
    [[nodiscard]] nanoseconds retry_due() const noexcept {
        return retry_ ? retry_->at : base::alarm::never;
    }
    /// Hands unwanted grants to their next waiters: one round trip each, or two.
    void give_back_unwanted();
    /// Deletes the entries of sessions that have ended. What is locked is left to the reaper.
    /// @param between called after each statement that deletes
    void delete_entries_of_ended_sessions(const std::function<void()>& between,
                                          const std::atomic<bool>& stopping);

private:
    void answer(const std::shared_ptr<waiter>& which, bool deleted);
    void look_behind(const std::string& name);
    void answer_several(waiter& which, const std::vector<grant_id>& deleted);
    bool cancel(const std::vector<std::shared_ptr<waiter>>& all);
    bool cancel_one_by_one(std::vector<std::shared_ptr<waiter>> all);
    bool hand_over(const protocol::hold_key& which);

    const loop_parts& parts_;
    loop_connection& link_;
    grant_verifier& verifier_;
    std::optional<task> retry_{};
    grant_id locked_{};  ///< the latest entry that was found locked by itself
};

}  // namespace rowlock::detail
