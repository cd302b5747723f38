#pragma once

#include <rowlock/error.hpp>
#include <rowlock/options.hpp>

#include <chrono>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace rowlock {

/// The result of a repeated call, and how many attempts it took.
template <typename T>
struct retried {
    T value;
    int attempts;
};
template <>
struct retried<void> {
    int attempts;
};

namespace detail {

/// The pause after a failed attempt. @throws `failure` itself if it must not be repeated, the
/// policy gives up, or a stop was requested.
void pause_or_rethrow(const retry_policy& policy, const error& failure, int attempts_made,
                      std::chrono::steady_clock::time_point first, const std::stop_token& stop);

/// Calls `action(attempt)`, counted from 1, until it returns. Repeats what is retryable().
template <typename Action>
auto repeat(const retry_policy& policy, const std::stop_token& stop, Action&& action)
    -> retried<std::invoke_result_t<Action&, int>> {
    const auto first = std::chrono::steady_clock::now();
    for (int attempt = 1;; ++attempt) {
        try {
            if constexpr (std::is_void_v<std::invoke_result_t<Action&, int>>) {
                action(attempt);
                return {attempt};
            } else {
                return {action(attempt), attempt};
            }
        } catch (const error& failure) {
            pause_or_rethrow(policy, failure, attempt, first, stop);
        }
    }
}

}  // namespace detail
}  // namespace rowlock
