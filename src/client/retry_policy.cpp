#include <rowlock/options.hpp>

#include <algorithm>
#include <random>

namespace rowlock {

std::optional<std::chrono::milliseconds> retry_policy::next(
    const error& failure, int attempts_made, std::chrono::milliseconds elapsed) const {
    if (decide) return decide(failure, attempts_made, elapsed);
    if (attempts_made >= attempts || elapsed >= total) return std::nullopt;
    const auto doubled = backoff * (std::int64_t{1} << std::min(attempts_made - 1, 20));
    const auto longest = std::min(doubled, max_backoff);
    thread_local std::minstd_rand generator{std::random_device{}()};
    const double part = 1.0 - jitter * std::uniform_real_distribution<double>{}(generator);
    return std::chrono::milliseconds{
        static_cast<std::int64_t>(static_cast<double>(longest.count()) * part)};
}

}  // namespace rowlock
