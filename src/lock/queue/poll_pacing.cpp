#include "lock/queue/poll_pacing.hpp"

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// The least time between two hand-overs: bounds the estimates of a queue's speed, and stands for
/// them while nothing is known.
constexpr nanoseconds quickest_hand_over = 300us;
/// A queue is slow if a hand-over takes longer. A waiter that is not notified by name then does not
/// trust the estimate of a queue that has just moved.
constexpr nanoseconds slow_hand_over = 5ms;
/// A sleep in the server has most often begun within this time: a poll after it finds what was
/// handed over before.
constexpr nanoseconds sleep_begins_within = 3ms;
/// A poll planned for the expiry of a holder comes this much later, to find it expired.
constexpr nanoseconds after_expiry = 1ms;

/// Without wake-ups, the first pause after a change, for each position …
constexpr nanoseconds pause_per_position = 2ms;
/// … up to this one: behind it waiters differ no more.
constexpr std::int64_t farthest_paused = 64;

/// After a commit to an SQLite file, positions behind this one wait no longer for a poll.
constexpr std::int64_t farthest_after_commit = 64;
/// Bounds how often the first waiter polls while others commit all the time.
constexpr nanoseconds least_rest_of_first = 200us;
/// A waiter that leaves the file unwatched does so for at least this time, so that one whose turn
/// seems near does not poll all the time.
constexpr nanoseconds least_unwatched = 1ms;
/// How many of a queue watch the file. Where no client can notify them by name (another network
/// namespace, a driver that cannot), more than one must, or the next is asleep when it is served.
constexpr std::int64_t watching_if_named = 1;
constexpr std::int64_t watching_otherwise = 3;

[[nodiscard]] std::int64_t entries_before(std::int64_t position) noexcept {
    return std::max<std::int64_t>(position - 1, 1);
}

}  // namespace

/// An entry that stands still longer than each step took so far shows that the queue is slower.
void queue_progress::observe(nanoseconds at, std::int64_t before, std::int64_t position) noexcept {
    const nanoseconds since = still_for(at);
    if (step_ == 0ns) {
        step_ = quickest_hand_over;
        moved_at_ = at;
    } else if (position < before) {
        step_ = std::max<nanoseconds>(since / (before - position), quickest_hand_over);
        moved_at_ = at;
    } else {
        step_ = std::max(step_, since);
    }
}

nanoseconds queue_progress::expected_wait(std::int64_t position) const noexcept {
    return entries_before(position) * step_;
}

void poll_result::recheck_by(nanoseconds at) noexcept {
    recheck_at = std::min(recheck_at, at);
}

void poll_result::recheck_soon(nanoseconds now) noexcept {
    recheck_by(now + std::chrono::milliseconds{250});
}

void poll_result::holder_expires(nanoseconds at) noexcept {
    recheck_by(at + after_expiry);
}

/// A poll of a thousand entries takes its time, and a thousand entries are added one after the
/// other: wanted polls are spaced so that they take at most a third of it.
nanoseconds poll_pacing::due() const noexcept {
    const guard lock{mutex_};
    const nanoseconds at = std::min(at_, unless_read_);
    return wanted_ ? std::min(at, last_ + 3 * cost_) : at;
}

void poll_pacing::want() noexcept {
    const guard lock{mutex_};
    wanted_ = true;
}

void poll_pacing::no_later_than(nanoseconds at) noexcept {
    const guard lock{mutex_};
    plan(at);
}

void poll_pacing::holder_expires(nanoseconds at) noexcept {
    no_later_than(at + after_expiry);
}

void poll_pacing::begin_poll(nanoseconds now) noexcept {
    const guard lock{mutex_};
    wanted_ = false;
    at_ = unless_read_ = base::alarm::never;
    last_ = now;
}

void poll_pacing::end_poll(nanoseconds now, const poll_result& found, wakeup by) noexcept {
    const guard lock{mutex_};
    cost_ = now - last_;
    pause_ = next_pause(found, by);
    plan(std::min(last_ + pause_, found.recheck_at));
}

/// Without wake-ups: soon, the sooner the nearer a waiter is to its turn, then with growing pauses,
/// and from the beginning when something changed. With a new sleep: soon, as a wake-up that came
/// before it was missed.
nanoseconds poll_pacing::next_pause(const poll_result& found, wakeup by) const noexcept {
    if (by == wakeup::notification) return interval_;
    if (by == wakeup::new_sleep) return std::min(interval_, 4 * sleep_begins_within);
    if (by == wakeup::sleep) {
        return std::min<nanoseconds>(interval_,
                                     4 * std::max(pause_, nanoseconds{sleep_begins_within}));
    }
    if (!found.changed && pause_ != 0ns) return std::min(interval_, pause_ + pause_ / 2);
    const auto position = std::min(found.best_position, farthest_paused);
    return std::min<nanoseconds>(interval_, pause_per_position * position);
}

void poll_pacing::about_to_read(nanoseconds poll_by) noexcept {
    const guard lock{mutex_};
    unless_read_ = std::min(unless_read_, poll_by);
}

void poll_pacing::was_read() noexcept {
    const guard lock{mutex_};
    unless_read_ = base::alarm::never;
}

/// A wake-up cannot end a sleep that has not begun yet: the client polls when it has, and again
/// later, as a busy machine may begin it late. Between one sleep and the next only a short time is
/// missed: one poll, which replaces the next.
void poll_pacing::before_sleep(nanoseconds now, bool again) noexcept {
    const guard lock{mutex_};
    new_sleep_ = new_sleep_ || !again;
    plan(now + (again ? 4 : 1) * sleep_begins_within);
}

bool poll_pacing::take_new_sleep() noexcept {
    const guard lock{mutex_};
    const bool taken = new_sleep_;
    new_sleep_ = false;
    return taken;
}

/// Others may commit thousands of times a second, mostly for other waiters: a waiter far behind
/// need not poll at each hand-over.
void poll_pacing::after_commit(std::int64_t best_position) noexcept {
    const guard lock{mutex_};
    const auto before_us = std::min(best_position, farthest_after_commit) - 1;
    const nanoseconds rest = before_us == 0
                                 ? std::max(least_rest_of_first, cost_)
                                 : std::max<nanoseconds>(before_us * quickest_hand_over, 5 * cost_);
    plan(last_ + rest);
}

bool poll_pacing::should_watch(std::int64_t best_position, bool by_name) noexcept {
    return best_position <= (by_name ? watching_if_named : watching_otherwise);
}

/// A waiter that is notified by name loses nothing by a late poll. Any other keeps the whole queue
/// waiting: it may stop watching the longer, the longer the queue has stood still.
nanoseconds poll_pacing::unwatch_for(std::int64_t position, const queue_progress& progress,
                                     bool by_name) const noexcept {
    const nanoseconds expected = progress.expected_wait(position);
    if (by_name) return std::max(least_unwatched, expected);
    const guard lock{mutex_};
    const nanoseconds trusted = std::max<nanoseconds>(entries_before(position) * slow_hand_over,
                                                      progress.still_for(last_) / 8);
    return std::max(least_unwatched, std::min<nanoseconds>(expected / 2, trusted));
}

}  // namespace rowlock::detail
