#pragma once

#include "lock/protocol/lease/retained_grant.hpp"
#include <rowlock/ids.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <vector>

namespace rowlock::detail {

/// What a call without a queue entry does about leases that their clients may keep idle
/// (docs/adr/0055, 0061): it recalls each grant, and if one is retained 50 ms later, marks its row.
/// Decides for the library and the tool; they send. Not thread-safe.
class recalls {
public:
    using steady = std::chrono::steady_clock;
    using grants = std::vector<protocol::retained_grant>;

    /// Far longer than an idle lease takes to be given back, unless its client cannot be reached.
    static constexpr auto patience = std::chrono::milliseconds{50};
    /// For a call that looks for longer: both may have failed.
    static constexpr auto again_after = std::chrono::seconds{1};

    /// @param seen those that the latest attempt has found retained
    /// @param send called if there is something to do, with the grants to recall and those to mark.
    /// What fails is not repeated at once.
    /// Returns how long to pause before the next attempt, also of a lease that is not retained any
    /// more: it may have been given back and taken again. Nullopt: nothing was recalled, or an idle
    /// lease would have been given back by now.
    template <typename Send>
    std::optional<std::chrono::nanoseconds> ask(std::span<const protocol::retained_grant> seen,
                                                Send send) {
        const auto now = steady::now();
        grants to_recall;
        grants to_mark;
        std::erase_if(asked_, [&](const asked& each) { return now - each.at >= again_after; });
        for (const auto& each : seen) {
            const auto known = std::ranges::find(asked_, each.grant_id, &asked::grant_id);
            if (known == asked_.end()) {
                asked_.push_back({each.grant_id, now});
                to_recall.push_back(each);
            } else if (!known->marked && now - known->at >= patience) {
                known->marked = true;
                to_mark.push_back(each);
            }
        }
        if (!to_recall.empty() || !to_mark.empty()) send(to_recall, to_mark);
        if (!first_ && !to_recall.empty()) first_ = now;
        if (!first_ || now - *first_ >= patience) return std::nullopt;
        return std::max<std::chrono::nanoseconds>((now - *first_) / 2,
                                                  std::chrono::milliseconds{1});
    }

private:
    struct asked {
        rowlock::grant_id grant_id;
        steady::time_point at;
        bool marked = false;
    };
    std::vector<asked> asked_{};
    std::optional<steady::time_point> first_{};  ///< when something was recalled
};

}  // namespace rowlock::detail
