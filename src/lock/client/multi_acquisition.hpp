#pragma once

#include "lock/client/acquisition.hpp"
#include "lock/protocol/multi/multi_protocol.hpp"
#include <rowlock/ids.hpp>
#include <rowlock/lock_name.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace rowlock::detail {

/// State of one call that acquires several locks: what it has in common with the call for one, and
/// the grant ids of its latest attempt.
struct multi_acquisition {
    acquisition call;                       ///< named by the first
    const std::vector<wanted_lock>& locks;  ///< in byte order, each once
    std::vector<grant_id> ids{};            ///< of the latest attempt, or of the entries
    bool unknown = false;                   ///< its reply was lost
    int contested_turns = 0;                ///< consecutive turns that ended contested

    /// Whether it asks for a part of a lock, besides whole ones or alone.
    [[nodiscard]] bool has_parts() const {
        return std::ranges::any_of(locks, [](const auto& each) { return each.what.is_part(); });
    }
    [[nodiscard]] std::vector<protocol::wanted_name> entries() const {
        std::vector<protocol::wanted_name> all;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            all.push_back({locks[i].name.str(), ids[i], locks[i].what});
        }
        return all;
    }

    [[nodiscard]] protocol::hold_key key(std::size_t i) const {
        return protocol::key_of(locks[i].what, locks[i].name.str(), call.ours->id(), ids[i]);
    }

    /// Ids for a new attempt, which the session knows for as long as it may have been granted.
    void make_ids() {
        hand_over();
        ids.clear();
        for (std::size_t i = 0; i < locks.size(); ++i) {
            ids.push_back(grant_id{call.context.next_id()});
            call.ours->expect(key(i));
        }
    }
    /// The attempt was not sent, or granted nothing.
    void forget_ids() const noexcept {
        for (const auto each : ids) call.ours->grants().forget(each);
    }
    /// Leaves an attempt whose outcome is unknown to the heartbeat.
    void hand_over() noexcept {
        if (!unknown) return;
        unknown = false;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            call.grants.leave_unresolved(
                *call.ours, key(i),
                {.not_after = call.context.now() + call.context.statement_bound()});
        }
    }

    multi_acquisition(const acquisition& call_, const std::vector<wanted_lock>& locks_)
        : call{call_}, locks{locks_} {}
    multi_acquisition(const multi_acquisition&) = delete;
    multi_acquisition& operator=(const multi_acquisition&) = delete;
    ~multi_acquisition() { hand_over(); }
};

}  // namespace rowlock::detail
