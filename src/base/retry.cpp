#include <rowlock/retry.hpp>

#include <condition_variable>
#include <mutex>

namespace rowlock::detail {

void pause_or_rethrow(const retry_policy& policy, const error& failure, int attempts_made,
                      std::chrono::steady_clock::time_point first, const std::stop_token& stop) {
    using namespace std::chrono;
    if (!failure.retryable() || stop.stop_requested()) throw;
    const auto elapsed = duration_cast<milliseconds>(steady_clock::now() - first);
    const auto pause = policy.next(failure, attempts_made, elapsed);
    if (!pause) throw;
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock{mutex};
    wake.wait_for(lock, stop, *pause, [] { return false; });
    if (stop.stop_requested()) throw;
}

}  // namespace rowlock::detail
