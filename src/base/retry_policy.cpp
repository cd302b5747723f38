#include "base/jitter.hpp"
#include <rowlock/options.hpp>

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

}  // namespace rowlock
