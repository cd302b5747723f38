#pragma once

#include "lock/session/client_connections.hpp"
#include "lock/session/client_context.hpp"
#include <rowlock/error.hpp>
#include <rowlock/retry.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>

namespace rowlock::detail {

/// Whether an attempt of a call may have made its change: its reply was lost.
class unknown_change {
public:
    /// Runs the part of an attempt that makes the change.
    template <typename Make>
    auto operator()(Make make) {
        try {
            return make();
        } catch (const error& failure) {
            unknown_ = unknown_ || failure.kind() == errc::outcome_unknown;
            throw;
        }
    }
    /// By what was sent before this call.
    void may_be_made() noexcept { unknown_ = true; }
    /// Of the attempts so far.
    [[nodiscard]] bool possible() const noexcept { return unknown_; }

private:
    bool unknown_ = false;
};

/// Repeats the attempts of a call as client_options::retry says. Thread-safe.
class retry_loop {
public:
    using steady = std::chrono::steady_clock;

    /// No attempt starts after `last_start`, and none goes on after `give_up`.
    struct limits {
        // NOLINTNEXTLINE(google-explicit-constructor): most calls have one limit
        limits(steady::time_point both) : give_up{both}, last_start{both} {}
        limits(steady::time_point give_up_, steady::time_point last_start_)
            : give_up{give_up_}, last_start{std::min(give_up_, last_start_)} {}
        steady::time_point give_up;
        steady::time_point last_start;
    };

    retry_loop(client_context& context, client_connections& connections)
        : context_{context}, connections_{connections} {}

    /// Runs `action` and repeats it after retryable failures, within `within`. Returns nullopt if a
    /// stop is requested during a pause. Unknown outcomes are retried too: every action passed here
    /// first finds out what became of its earlier attempt, or is idempotent.
    template <typename Action>
    auto repeat(const limits& within, const std::stop_token& stop, Action action);
    /// Like repeat(), with a pooled connection for each attempt.
    template <typename Action>
    auto on_connection(const limits& within, const std::stop_token& stop, Action action);
    /// The same for a call without a time limit of its own.
    template <typename Action>
    auto on_connection(Action action);
    /// Like on_connection(), for a change that its caller has to know of: attempt(db, until,
    /// change) makes it inside change(…). Once an attempt was not answered, which may have been
    /// committed, or will be, no later failure says that nothing was done: it is
    /// errc::outcome_unknown.
    ///
    /// on_connection() and repeat() are for what only reads, and for what ends alike whether it was
    /// done or not. An acquire, an enqueue, a reclaim or an adoption that fails leaves what it may
    /// have been granted to the heartbeat, which gives it back; a release that fails is repeated by
    /// it. A vote or token of a quorum's member counts if its answer came.
    template <typename Attempt>
    auto change(const limits& within, const std::stop_token& stop, Attempt attempt);
    /// The same for a call without a time limit of its own.
    template <typename Attempt>
    auto change(Attempt attempt);

    /// Sleeps. Returns false if a stop was requested; ends early when the client is closed.
    bool pause(nanoseconds time, const std::stop_token& stop);
    /// When a call that its caller limits to `until` gives up after failures: even a caller that
    /// does not wait for the lock allows one statement its full time.
    [[nodiscard]] steady::time_point failure_deadline(steady::time_point until) const;

    /// The client is closed: ends all pauses.
    void close() noexcept;
    [[nodiscard]] bool closed() const noexcept { return closed_; }

private:
    /// A caller of repeat_attempts(), which counts what it sees.
    class caller : public on_steady_clock {
    public:
        caller(retry_loop& loop, const limits& within, const std::stop_token& stop) noexcept
            : loop_{loop}, within_{within}, stop_{stop} {}
        [[nodiscard]] retry_step judge(const error& failure) const noexcept;
        [[nodiscard]] retry_step wait(std::chrono::milliseconds time) const;
        [[nodiscard]] std::nullopt_t stopped() const noexcept { return std::nullopt; }

    private:
        retry_loop& loop_;
        const limits& within_;
        const std::stop_token& stop_;
    };

    /// The error of a call whose earlier attempt may have made its change.
    [[nodiscard]] static error unknown_after(const error& failure);

    client_context& context_;
    client_connections& connections_;
    std::atomic<bool> closed_{false};
    std::mutex pause_mutex_;
    std::condition_variable_any pause_;
};

template <typename Action>
auto retry_loop::repeat(const limits& within, const std::stop_token& stop, Action action) {
    using answer = std::optional<decltype(action(sql::deadline{}))>;
    return repeat_attempts(
        attempt_counter{context_.options.retry}, caller{*this, within, stop}, [&](int) -> answer {
            return answer{action(std::min(within.give_up, context_.statement_deadline()))};
        });
}

template <typename Action>
auto retry_loop::on_connection(const limits& within, const std::stop_token& stop, Action action) {
    return repeat(within, stop, [&](sql::deadline until) {
        const auto db = connections_.take(until);
        return action(*db, until);
    });
}

template <typename Action>
auto retry_loop::on_connection(Action action) {
    return *on_connection(failure_deadline(steady::now() + context_.options.retry.total), {},
                          std::move(action));
}

template <typename Attempt>
auto retry_loop::change(const limits& within, const std::stop_token& stop, Attempt attempt) {
    unknown_change made;
    try {
        return on_connection(within, stop, [&](sql::connection& db, sql::deadline until) {
            return attempt(db, until, made);
        });
    } catch (const error& failure) {
        if (!made.possible() || failure.kind() == errc::outcome_unknown) throw;
        throw unknown_after(failure);
    }
}

template <typename Attempt>
auto retry_loop::change(Attempt attempt) {
    return *change(failure_deadline(steady::now() + context_.options.retry.total), {},
                   std::move(attempt));
}

}  // namespace rowlock::detail
