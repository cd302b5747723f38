#pragma once

#include "lock/queue/deadlock_breaker.hpp"
#include "lock/queue/grant_verifier.hpp"
#include "lock/queue/loop_connection.hpp"
#include "lock/queue/loop_parts.hpp"
#include "lock/wakeup/wakeup_source.hpp"
#include <rowlock/ids.hpp>

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace rowlock::detail {

/// Polls the entries of this client in all queues: finds what no wake-up reported, entries that can
/// be served, holders that have ended, entries for which no thread waits. Used by the loop's
/// thread.
class entry_poller {
public:
    entry_poller(const loop_parts& parts, loop_connection& link, grant_verifier& verifier,
                 wakeup::wakeup_source& source)
        : parts_{parts}, link_{link}, verifier_{verifier}, source_{source} {}

    /// If a poll is due: one round trip for all entries, one for each lock whose counted holds are
    /// in the way, and some for what it finds.
    void poll_if_due();
    /// SQLite: another client committed to the file.
    void committed();

private:
    using entries_by_id = std::unordered_map<grant_id, const protocol::queue_entry*>;

    void poll(const std::shared_ptr<session>& ours,
              const std::vector<std::shared_ptr<waiter>>& queued);
    bool poll_entries(const std::shared_ptr<session>& ours,
                      const std::vector<std::shared_ptr<waiter>>& queued);
    void act_on(const protocol::queue_entry& entry, session& ours);
    bool refuse_kind(const protocol::queue_entry& entry);
    void end_holder(const protocol::queue_entry& entry);
    void look_at_holders(const std::string& name);
    void reset_watermark(const protocol::queue_entry& entry);
    void observe(waiter& which, const protocol::queue_entry& entry);
    void observe_several(const std::shared_ptr<waiter>& which, const entries_by_id& entries);
    void ask_after(session& ours, std::vector<std::shared_ptr<waiter>> missing);
    [[nodiscard]] std::vector<std::optional<protocol::queue_grant>> served(
        const std::vector<std::shared_ptr<waiter>>& missing);
    void lose(session& ours, loss_reason why);
    void plan_next();
    [[nodiscard]] poll_pacing::wakeup next_wakeup();
    void unwatch_commits();

    const loop_parts& parts_;
    loop_connection& link_;
    grant_verifier& verifier_;
    wakeup::wakeup_source& source_;
    deadlock_breaker deadlocks_{parts_, link_};

    /// The latest poll.
    struct round {
        nanoseconds began{0};
        bool whole = false;  ///< all entries of the session, also those for which no thread waits
        poll_result found{};
        std::unordered_set<grant_id> strays{};      ///< entries for which no thread waits
        std::unordered_set<std::string> rewound{};  ///< names whose watermark was reset
        std::unordered_set<session_id> ended{};     ///< expired sessions that it ended, or tried to
        std::set<std::string> counted{};            ///< names with counted holds in the way
    };
    round round_;
    std::unordered_set<grant_id> strays_;  ///< of the previous whole poll
    nanoseconds whole_poll_at_{0};
};

}  // namespace rowlock::detail
