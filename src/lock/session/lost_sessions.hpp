#pragma once

#include "lock/session/session.hpp"
#include <rowlock/ids.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace rowlock::detail {

/// Sessions that this client declared lost and that may still live in the database. Ending such a
/// session passes its leases on at once, so it waits until the margin since the loss is over, or
/// every holder has reported that it stopped: waiters, and calls that have not returned, have no
/// holder. No clock: all times are the caller's. Thread-safe.
class lost_sessions {
public:
    lost_sessions(nanoseconds margin, nanoseconds ttl) : margin_{margin}, ttl_{ttl} {}

    /// It is not due before begin_margin(), unless it has no holder left.
    void add(std::shared_ptr<session> lost);
    /// Its holders have just been notified.
    void begin_margin(session_id lost, nanoseconds now) noexcept;
    /// From now on each is due at once: the client is being destroyed, which releases its leases.
    void end_all() noexcept;

    /// The id of one that may be ended now. Forgets those that have expired.
    [[nodiscard]] std::optional<session_id> due(nanoseconds now);
    /// Forgets one that was ended.
    void ended(session_id lost) noexcept;
    /// When the next is due; nanoseconds::min() if one is, base::alarm::never if there is none.
    [[nodiscard]] nanoseconds next_due(nanoseconds now) const;
    /// Whether each may be ended now.
    [[nodiscard]] bool all_due(nanoseconds now) const;

private:
    struct entry {
        std::shared_ptr<session> which;
        nanoseconds not_before;  ///< unless no holder is left: end of the margin since its loss
        nanoseconds expired_by;  ///< the database sees it expired from then on
    };
    [[nodiscard]] nanoseconds due_at(const entry& lost, nanoseconds now) const;

    const nanoseconds margin_;
    const nanoseconds ttl_;
    mutable std::mutex mutex_;
    bool end_all_ = false;
    std::vector<entry> all_;
};

}  // namespace rowlock::detail
