#include "base/retry_policy.hpp"

#include "base/jitter.hpp"
#include "base/require.hpp"

#include <algorithm>
#include <cstdint>

namespace rowlock {

namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr milliseconds longest_pause = 24h;
constexpr milliseconds longest_total = 24h * 3660;

}  // namespace

std::optional<milliseconds> retry_policy::next(const error& failure, int attempts_made,
                                               milliseconds elapsed) const {
    if (decide) {
        const auto pause = decide(failure, attempts_made, elapsed);
        return pause ? std::optional{std::min(*pause, longest_pause)} : std::nullopt;
    }
    if (attempts_made >= attempts || elapsed >= total) return std::nullopt;
    const auto growth = std::int64_t{1} << std::min(attempts_made - 1, 20);
    const auto longest = backoff > max_backoff / growth ? max_backoff : backoff * growth;
    return base::shortened(std::min(longest, longest_pause), jitter);
}

retry_policy base::validated(retry_policy policy) {
    require(policy.attempts >= 1 && policy.backoff >= 0ms && policy.max_backoff >= 0ms &&
                policy.total >= 0ms && policy.jitter >= 0 && policy.jitter <= 1,
            "retry: attempts must be at least 1, times not negative, jitter from 0 to 1");
    policy.backoff = std::min(policy.backoff, longest_pause);
    policy.max_backoff = std::min(policy.max_backoff, longest_pause);
    policy.total = std::min(policy.total, longest_total);
    return policy;
}

}  // namespace rowlock
