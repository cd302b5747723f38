#pragma once

#include <rowlock/error.hpp>
#include <rowlock/options.hpp>

#include <chrono>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace rowlock {

/// @addtogroup options
/// @{

/// The result of a repeated call, and how many attempts it took.
template <typename T>
struct retried {
    T value;       ///< what the call returned
    int attempts;  ///< how many were made, the last included
};
/// The same for a call that returns nothing.
template <>
struct retried<void> {
    int attempts;  ///< how many were made, the last included
};

namespace detail {

/// Counts the attempts of one call and decides, after each that failed, whether its policy allows
/// another. Has no clock: the caller says what time it is. `policy` must outlive it.
class attempt_counter {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// @param long_attempt an attempt that fails after more than this counts as the first
    explicit attempt_counter(
        const retry_policy& policy,
        std::chrono::milliseconds long_attempt = std::chrono::milliseconds::max()) noexcept
        : policy_{policy}, long_attempt_{long_attempt} {}

    /// Begins the next attempt. Returns its number, from 1.
    int begin(time_point now) noexcept;
    /// The attempt failed. Returns the pause before the next one, or nullopt to give up.
    [[nodiscard]] std::optional<std::chrono::milliseconds> fail(const error& failure,
                                                                time_point now);

private:
    const retry_policy& policy_;
    std::chrono::milliseconds long_attempt_;
    time_point first_{}, begun_{};
    int number_ = 0;
};

/// What follows a failed attempt.
enum class retry_step : unsigned char {
    repeat,
    give_up,  ///< the failure is thrown
    stop,     ///< the result is what the caller's stopped() returns
};

/// Calls `action(attempt)`, counted from 1, until it returns, and returns its result. What only the
/// caller knows are the members of `caller`:
/// - `now()`: the time;
/// - `judge(failure)`: whether an attempt that failed so may be repeated; called once for each
///   failed attempt;
/// - `wait(pause)`: lets the pause pass, and says whether another attempt follows;
/// - `stopped()`: the result after retry_step::stop; needed only by a caller that answers so.
///
/// Only `error`s are repeated; other exceptions pass through.
template <typename Caller, typename Action>
auto repeat_attempts(attempt_counter attempts, Caller&& caller, Action&& action)
    -> std::invoke_result_t<Action&, int> {
    using result = std::invoke_result_t<Action&, int>;
    for (;;) {
        const int attempt = attempts.begin(caller.now());
        try {
            return action(attempt);
        } catch (const error& failure) {
            retry_step next = caller.judge(failure);
            if (next == retry_step::repeat) {
                const auto pause = attempts.fail(failure, caller.now());
                next = pause ? caller.wait(*pause) : retry_step::give_up;
            }
            if constexpr (requires { caller.stopped(); }) {
                if (next == retry_step::stop) return static_cast<result>(caller.stopped());
            }
            if (next != retry_step::repeat) throw;
        }
    }
}

/// Callers of repeat_attempts() with the real clock derive from this.
struct on_steady_clock {
    [[nodiscard]] std::chrono::steady_clock::time_point now() const noexcept {
        return std::chrono::steady_clock::now();
    }
};

/// A caller of repeat_attempts() that repeats what is retryable(). A stop ends its pauses; the last
/// failure is then thrown.
class retry_until_stopped : public on_steady_clock {
public:
    /// `stop` must outlive it.
    explicit retry_until_stopped(const std::stop_token& stop) noexcept : stop_{stop} {}

    [[nodiscard]] retry_step judge(const error& failure) const noexcept;
    [[nodiscard]] retry_step wait(std::chrono::milliseconds pause) const;

private:
    const std::stop_token& stop_;
};

/// Calls `action(attempt)`, counted from 1, until it returns. Repeats what is retryable().
template <typename Action>
auto repeat(const retry_policy& policy, const std::stop_token& stop, Action&& action)
    -> retried<std::invoke_result_t<Action&, int>> {
    using answer = std::invoke_result_t<Action&, int>;
    return repeat_attempts(attempt_counter{policy}, retry_until_stopped{stop},
                           [&](int attempt) -> retried<answer> {
                               if constexpr (std::is_void_v<answer>) {
                                   action(attempt);
                                   return {attempt};
                               } else {
                                   return {action(attempt), attempt};
                               }
                           });
}

}  // namespace detail

/// @}

}  // namespace rowlock
