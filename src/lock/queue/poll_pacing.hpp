#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace rowlock::detail {

using std::chrono::nanoseconds;

/// How fast a queue moves, observed at one waiter's entry.
class queue_progress {
public:
    /// @param at when the poll began that found the entry at `position`
    /// @param before its position at the previous poll; any number at the first
    void observe(nanoseconds at, std::int64_t before, std::int64_t position) noexcept;

    /// How long an entry at this position is expected to wait until it is served.
    [[nodiscard]] nanoseconds expected_wait(std::int64_t position) const noexcept;
    /// For how long, at this time, the entry has not moved.
    [[nodiscard]] nanoseconds still_for(nanoseconds at) const noexcept { return at - moved_at_; }

private:
    nanoseconds moved_at_{0};
    nanoseconds step_{0};  ///< between two hand-overs; 0: no poll has seen the entry yet
};

/// What a poll found.
struct poll_result {
    /// The best position of this client's entries; a far one if the poll found none.
    std::int64_t best_position = 1'000'000;
    bool changed = false;  ///< an entry moved, or is gone
    /// When another poll is known to find more.
    nanoseconds recheck_at = base::alarm::never;

    void recheck_by(nanoseconds at) noexcept;
    /// A row is locked, or may be: another poll tries again.
    void recheck_soon(nanoseconds now) noexcept;
    void holder_expires(nanoseconds at) noexcept;
};

/// Decides when a client that waits polls its queues. It reads no clock: callers pass the time.
/// Thread-safe.
class poll_pacing {
public:
    /// What wakes the client before its next poll.
    enum class wakeup : unsigned char {
        none,
        notification,  ///< by the database, or a change of the watched file
        sleep,         ///< a statement that sleeps in the server and is interrupted
        new_sleep,     ///< the same, begun since the previous poll
    };

    /// After a wake-up that another node of a cluster sent, its commit has most often reached ours
    /// within this time.
    static constexpr nanoseconds replicated_within = std::chrono::milliseconds{3};

    /// @param interval the longest time between two polls
    explicit poll_pacing(nanoseconds interval) noexcept : interval_{interval} {}

    /// When the next poll is due.
    [[nodiscard]] nanoseconds due() const noexcept;
    /// Asks for a poll as soon as the cost of the previous one allows.
    void want() noexcept;
    void no_later_than(nanoseconds at) noexcept;
    /// A poll soon afterwards finds it expired.
    void holder_expires(nanoseconds at) noexcept;

    /// A poll begins, which satisfies all that asked for one. If it fails, call want().
    void begin_poll(nanoseconds now) noexcept;
    /// The poll has ended: plans the next.
    void end_poll(nanoseconds now, const poll_result& found, wakeup by) noexcept;

    /// A wake-up came, and what it tells of is about to be read: a poll is due then, unless
    /// was_read() comes first.
    void about_to_read(nanoseconds poll_by) noexcept;
    /// All threads that waited were served.
    void was_read() noexcept;

    /// A sleep in the server is about to begin.
    /// @param again it follows another that was not interrupted, after a moment
    void before_sleep(nanoseconds now, bool again) noexcept;
    /// Returns once for each new sleep that it began: wake-ups sent before it were missed.
    [[nodiscard]] bool take_new_sleep() noexcept;

    // --- SQLite, where each commit to the file wakes each client that watches it
    /// Another client committed.
    /// @param best_position as the latest poll found it
    void after_commit(std::int64_t best_position) noexcept;
    /// Whether a client is to watch the file.
    /// @param by_name whether hand-overs are notified to the waiter that is served
    [[nodiscard]] static bool should_watch(std::int64_t best_position, bool by_name) noexcept;
    /// For how long after the latest poll a waiter may leave the file unwatched.
    [[nodiscard]] nanoseconds unwatch_for(std::int64_t position, const queue_progress& progress,
                                          bool by_name) const noexcept;

private:
    using guard = std::lock_guard<std::mutex>;

    // With the mutex held.
    [[nodiscard]] nanoseconds next_pause(const poll_result& found, wakeup by) const noexcept;
    void plan(nanoseconds at) noexcept { at_ = std::min(at_, at); }

    const nanoseconds interval_;
    mutable std::mutex mutex_;
    bool wanted_ = false;
    nanoseconds at_ = base::alarm::never;           ///< when to poll, unless wanted earlier
    nanoseconds unless_read_ = base::alarm::never;  ///< the same, while a wake-up is being read
    nanoseconds last_{0};                           ///< when the latest poll began
    nanoseconds cost_{0};                           ///< how long the latest complete poll took
    nanoseconds pause_{0};                          ///< planned after it
    bool new_sleep_ = false;
};

}  // namespace rowlock::detail
