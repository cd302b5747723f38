#include "base/retry_policy.hpp"

#include "base/jitter.hpp"
#include "base/require.hpp"

#include <algorithm>
#include <cstdint>

namespace rowlock {

std::optional<std::chrono::milliseconds> retry_policy::next(
    const error& failure, int attempts_made, std::chrono::milliseconds elapsed) const {
    if (decide) return decide(failure, attempts_made, elapsed);
    if (attempts_made >= attempts || elapsed >= total) return std::nullopt;
    const auto growth = std::int64_t{1} << std::min(attempts_made - 1, 20);
    const auto longest = backoff > max_backoff / growth ? max_backoff : backoff * growth;
    return base::shortened(longest, jitter);
}

void base::validate(const retry_policy& policy) {
    constexpr std::chrono::milliseconds none{0};
    require(policy.attempts >= 1 && policy.backoff >= none && policy.max_backoff >= none &&
                policy.total >= none && policy.jitter >= 0 && policy.jitter <= 1,
            "retry: attempts must be at least 1, times not negative, jitter from 0 to 1");
}

}  // namespace rowlock
