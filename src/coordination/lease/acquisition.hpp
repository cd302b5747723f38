#pragma once

#include "coordination/lease/engine.hpp"
#include "coordination/lease/retry_limits.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace rowlock::detail {

/// State of one acquire call: its request, and what it does not know yet.
struct engine::acquisition {
    engine& self;
    const lock_name& name;
    const acquire_options& options;
    const std::stop_token& stop;
    steady::time_point until;
    nanoseconds statement_bound;
    base::clock clock;
    std::string thread;
    steady::time_point began = steady::now();

    std::shared_ptr<session> ours{};
    /// An attempt whose reply was lost. Each later attempt searches for these first and uses a new
    /// id, so that a late statement with an old id cannot be mistaken for the known hold.
    struct lost_attempt {
        std::int64_t grant_id;
        nanoseconds sent;
    };
    std::vector<lost_attempt> unknown{};
    std::int64_t grant_id = 0;
    nanoseconds sent{0};
    bool look_first = false;
    bool straight_to_line = false;
    bool alone = false;         ///< makes its (further) attempts unbatched
    bool had_place = false;     ///< had a queue entry, not yet reported as lost
    bool seen_held = false;     ///< the database has shown another holder: this is a waiter
    bool holds_others = false;  ///< its thread held other leases when it enqueued
    bool contended = false;     ///< as known from this client's last release
    contention_limit in_vain{};
    late_grant_limit too_late{};
    std::chrono::milliseconds poll{20};  ///< the next pause of a barging caller

    /// Whether the caller set a deadline: neither indefinite nor a single attempt.
    [[nodiscard]] bool limited() const {
        return until > began && until != steady::time_point::max();
    }
    [[nodiscard]] bool has_time() const { return steady::now() < until; }
    [[nodiscard]] bool barging() const { return options.queueing == queueing::barging; }
    [[nodiscard]] std::chrono::microseconds waited() const {
        return std::chrono::duration_cast<std::chrono::microseconds>(steady::now() - began);
    }
    [[nodiscard]] strategy::grant_request request() const {
        std::optional<std::int64_t> deadline_us;
        if (options.deadline) deadline_us = std::chrono::microseconds{*options.deadline}.count();
        return {.name = name.str(),
                .session = ours->id(),
                .grant_id = grant_id,
                .thread = thread,
                .note = options.note,
                .deadline_us = deadline_us,
                .barging = barging()};
    }

    /// Whether the holder is a lost attempt of this call that took effect meanwhile.
    [[nodiscard]] bool is_ours(const strategy::look& seen) const {
        return std::ranges::any_of(
            unknown, [&](const auto& lost) { return lost.grant_id == seen.grant_id; });
    }

    /// Calls `send` for an attempt with a new grant id, which the session knows for as long as the
    /// attempt may have been granted. Returns nullopt if `send` does.
    template <typename Send>
    std::optional<strategy::attempt> send_as_new(Send send) {
        grant_id = self.next_id();
        ours->expect(grant_id);
        std::optional<strategy::attempt> answer;
        try {
            sent = clock.now();
            answer = send();
        } catch (const error& failure) {
            if (failure.kind() == errc::outcome_unknown) {
                lose_sight();
            } else {
                ours->forget(grant_id);
            }
            throw;
        } catch (...) {
            lose_sight();  // out of memory: the statement may have run
            throw;
        }
        if (!answer || answer->what != strategy::attempt::outcome::granted) ours->forget(grant_id);
        return answer;
    }

    /// Records the last attempt as one with an unknown outcome.
    void lose_sight() noexcept {
        try {
            unknown.push_back({grant_id, sent});
        } catch (...) {
            give_up(grant_id);
        }
    }

    void use(std::shared_ptr<session> next) {
        if (ours == next) return;
        hand_over();
        ours = std::move(next);
    }
    /// Leaves the attempts that this call did not find to the heartbeat.
    void hand_over() noexcept {
        if (unknown.empty()) return;
        for (const auto& lost : unknown) give_up(lost.grant_id);
        unknown.clear();
    }
    void give_up(std::int64_t lost) noexcept {
        self.leave_unresolved(*ours, name.str(),
                              {.grant_id = lost, .not_after = clock.now() + statement_bound});
    }
    ~acquisition() { hand_over(); }
};

/// Runs `action` and repeats it after retryable failures, within `limits`. Returns nullopt if a
/// stop is requested during a pause. Unknown outcomes are retried too: every action passed here
/// first finds out what became of its earlier attempt, or is idempotent.
template <typename Action>
auto engine::repeat(const time_limits& limits, const std::stop_token& stop, Action action) {
    using answer = decltype(action(sql::deadline{}));
    const auto start = steady::now();
    for (int made = 1;; ++made) {
        try {
            return std::optional<answer>{
                action(std::min(limits.give_up, steady::now() + options_.statement_timeout))};
        } catch (const error& failure) {
            const bool unknown = failure.kind() == errc::outcome_unknown;
            if (unknown) count(counter::unknown_outcomes);
            if (!failure.retryable() && !unknown) throw;
            const auto elapsed =
                std::chrono::duration_cast<std::chrono::milliseconds>(steady::now() - start);
            const auto wait = options_.retry.next(failure, made, elapsed);
            if (!wait || steady::now() + *wait >= limits.last_start) throw;
            count(counter::retries);
            if (!pause(*wait, stop)) return std::optional<answer>{};
        }
    }
}

/// Like repeat(), with a pooled connection for each attempt.
template <typename Action>
auto engine::with_retries(const time_limits& limits, const std::stop_token& stop, Action action) {
    return repeat(limits, stop, [&](sql::deadline until) {
        const auto db = take_connection(until);
        return action(*db, until);
    });
}

}  // namespace rowlock::detail
