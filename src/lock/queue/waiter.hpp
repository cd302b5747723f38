#pragma once

#include "lock/queue/poll_pacing.hpp"
#include "lock/session/grant.hpp"
#include "lock/session/grant_lifecycle.hpp"
#include "lock/session/session.hpp"
#include <rowlock/error.hpp>
#include <rowlock/ids.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::detail {

/// One thread that waits in one queue; or in several, for all of their locks at once (`also`). The
/// registry's mutex guards what changes.
///
///     state      reached from   meaning
///     asked                     its ticket is being sent; it may be served already
///     waiting    asked          its ticket is in the queue
///     served     asked/waiting  `granted` is ours
///     vanished   waiting        the ticket is gone without a grant: ask again
///     failed     asked/waiting  `failure` says why
///     cancelled  asked/waiting  its thread gave it up; the ticket is deleted, or will be
///
/// The last four are final. A thread that gave up and got no answer in time has `left`; the loop
/// gives back a grant that comes after that.
///
/// A thread that waits for several locks takes them itself, when it is its `turn`: no other thread
/// serves it. While it is `taking` them, its entries may be gone.
struct waiter {
    enum class state : unsigned char { asked, waiting, served, vanished, failed, cancelled };

    /// A further queue, and the entry there.
    struct place {
        std::string name;
        rowlock::grant_id grant_id;
        protocol::wanted_permits permits{};
    };

    waiter(std::string name_, rowlock::grant_id grant_id_, std::shared_ptr<session> ours_,
           std::string thread_, std::optional<std::chrono::milliseconds> max_duration_,
           const protocol::wanted_permits& permits_ = {}, std::string blocks_ = {},
           std::vector<place> also_ = {})
        : name{std::move(name_)},
          grant_id{grant_id_},
          ours{std::move(ours_)},
          thread{std::move(thread_)},
          max_duration{max_duration_},
          permits{permits_},
          blocks{std::move(blocks_)},
          also{std::move(also_)} {}

    const std::string name;
    const rowlock::grant_id grant_id;
    const std::shared_ptr<session> ours;
    /// When it began to wait (change_news::looks): a later look may have found its grant ended.
    const std::int64_t looks_before = ours ? ours->news().looks.load() : 0;
    const std::string thread;  ///< label of the waiting thread, for deadlock detection
    /// The lease will have a deadline of its own, so long after the grant.
    const std::optional<std::chrono::milliseconds> max_duration;
    const protocol::wanted_permits permits;
    const std::string blocks;  ///< as its entry's: party_labels.hpp
    const std::vector<place> also;
    const std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
    [[nodiscard]] std::chrono::nanoseconds waited() const {
        return std::chrono::steady_clock::now() - since;
    }

    bool contended = false;     ///< the lease was just handed to another waiter: there is no hurry
    bool holds_others = false;  ///< its thread may be part of a cycle

    state now = state::asked;
    bool giving_up = false;
    bool left = false;
    bool turn = false;          ///< of several: they may be free for it
    bool taking = false;        ///< of several: a statement that takes them may be running
    std::int64_t position = 0;  ///< as last polled; 0: not yet
    queue_progress progress{};  ///< by the loop's clock; used by the loop's thread alone
    /// Queue entries of the deadlock cycle that it seemed to close at the last poll, and since
    /// when. Used by the loop's thread alone.
    std::vector<rowlock::grant_id> cycle{};
    std::chrono::nanoseconds cycle_since{0};
    std::shared_ptr<grant> granted{};
    std::optional<error> failure{};
    std::condition_variable_any changed{};

    /// Of its first entry.
    [[nodiscard]] protocol::hold_key key() const noexcept {
        return key_of(permits, name, grant_id);
    }
    /// Whether the row of the lock will name its grant, and no other row does.
    [[nodiscard]] bool wants_the_row() const noexcept { return also.empty() && !permits.is_part(); }
    /// Whether a hint is enough to believe its grant, before the row is read. No hint has a
    /// deadline; that of a counted hold may be ahead of the disk, with a token that is wrong; and
    /// one may be older than what a heartbeat has found.
    [[nodiscard]] bool hints_suffice() const noexcept {
        return wants_the_row() && !max_duration && ours->news().looks == looks_before;
    }
    [[nodiscard]] bool over() const noexcept { return now > state::waiting; }
    [[nodiscard]] bool of_several() const noexcept { return !also.empty(); }
    /// Calls `use` with the key of each of its entries.
    template <typename Use>
    void for_each_entry(Use use) const {
        use(key());
        for (const auto& each : also) use(key_of(each.permits, each.name, each.grant_id));
    }
    void append_entries_to(std::vector<rowlock::grant_id>& ids) const {
        for_each_entry([&](const protocol::hold_key& entry) { ids.push_back(entry.grant_id); });
    }
    /// What it waits for by one of its entries.
    [[nodiscard]] const protocol::wanted_permits& wanted(rowlock::grant_id entry) const noexcept {
        for (const auto& each : also) {
            if (each.grant_id == entry) return each.permits;
        }
        return permits;
    }

private:
    [[nodiscard]] protocol::hold_key key_of(const protocol::wanted_permits& what,
                                            const std::string& of,
                                            rowlock::grant_id entry) const noexcept {
        return protocol::key_of(what, of, ours ? ours->id() : session_id{}, entry);
    }
};

/// Its entries were cancelled: gives back those that were not deleted, and what they were granted.
inline void settle_cancelled(grant_lifecycle& grants, const waiter& which,
                             const std::vector<grant_id>& deleted) {
    which.for_each_entry([&](const protocol::hold_key& entry) {
        if (std::ranges::find(deleted, entry.grant_id) != deleted.end()) {
            which.ours->grants().forget(entry.grant_id);
        } else {
            grants.give_back(*which.ours, entry);
        }
    });
}

/// Gives back what its entries are or were granted, and the entries.
inline void give_back(grant_lifecycle& grants, const waiter& which) {
    which.for_each_entry(
        [&](const protocol::hold_key& entry) { grants.give_back(*which.ours, entry); });
}

}  // namespace rowlock::detail
